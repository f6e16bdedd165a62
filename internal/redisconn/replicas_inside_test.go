package redisconn

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A sentinel that was started anew does not know of a replica that is away, and one that has not
// heard of a failover names the old master.
func TestReplicasAreThoseThatAnySentinelLists(t *testing.T) {
	type views = []view
	for name, row := range map[string]struct {
		views    views
		attached []string
		want     []string
	}{
		"all agree":                  {views{{master: "m", others: []string{"a", "b"}}, {master: "m", others: []string{"b", "a"}}}, []string{"a"}, []string{"a", "b"}},
		"one does not know of b":     {views{{master: "m", others: []string{"a"}}, {master: "m", others: []string{"a", "b"}}}, []string{"a"}, []string{"a", "b"}},
		"one has not heard":          {views{{master: "m", others: []string{"a", "b"}}, {master: "a", others: []string{"b", "m"}}}, []string{"b", "m"}, []string{"b", "m"}},
		"most have not heard":        {views{{master: "m", others: []string{"a"}}, {master: "m", others: []string{"a"}}, {master: "a", others: []string{"m"}}}, []string{"m"}, []string{"m"}},
		"nothing is attached":        {views{{master: "m", others: []string{"a"}}, {master: "a", others: []string{"m"}}, {master: "a", others: []string{"m"}}}, nil, []string{"m"}},
		"a replica is attached anew": {views{{master: "m", others: []string{"a"}}, {master: "m", others: []string{"a"}}}, []string{"a", "b"}, []string{"a"}},
		"there are none":             {views{{master: "m"}, {master: "m"}}, nil, nil},
	} {
		got := unionOf(row.views, row.attached)
		slices.Sort(got)
		expect.Equal(t, name, got, row.want)
	}
}
