package redisconn

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A sentinel that was started anew does not know of a replica that is away, and one that has not
// heard of a failover names the old master.
func TestPlacesAreThoseThatAnySentinelLists(t *testing.T) {
	type (
		views = []view
		found = map[string]seen
		runs  = map[string]string
	)
	at := func(run string, ago int) seen { return seen{run, ago} }
	for name, row := range map[string]struct {
		views views
		run   string
		own   string
		want  runs
	}{
		"all agree": {views{{master: "m", found: found{"m": at("1", 0), "a": at("2", 0)}}, {master: "m", found: found{"m": at("1", 0), "a": at("2", 0)}}},
			"1", "m", runs{"a": "2"}},
		"one does not know of b": {views{{master: "m", found: found{"m": at("1", 0)}}, {master: "m", found: found{"m": at("1", 0), "b": at("3", 9)}}},
			"1", "m", runs{"b": "3"}},
		"most have not heard of the failover": {views{
			{master: "m", found: found{"m": at("1", 9), "a": at("2", 9)}}, {master: "m", found: found{"m": at("1", 9), "a": at("2", 9)}},
			{master: "a", found: found{"m": at("1", 9), "a": at("2", 0)}}}, "2", "a", runs{"m": "1"}},
		"the run was seen last": {views{{master: "m", found: found{"m": at("1", 0), "a": at("2", 9)}}, {master: "m", found: found{"m": at("1", 0), "a": at("4", 1)}}},
			"1", "m", runs{"a": "4"}},
		"no run is known": {views{{master: "m", found: found{"m": at("", 9), "a": at("", 9)}}, {master: "a", found: found{"m": at("", 9), "a": at("", 9)}},
			{master: "m", found: found{"m": at("", 9), "a": at("", 9)}}}, "1", "m", runs{"a": ""}},
		"there are no replicas": {views{{master: "m", found: found{"m": at("1", 0)}}}, "1", "m", runs{}},
	} {
		own, others := unionOf(row.views, row.run)
		expect.Equal(t, name+": its own", own, row.own)
		expect.Equal(t, name, others, row.want)
	}
}
