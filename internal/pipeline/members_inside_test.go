package pipeline

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A master may have been told to forget a replica that is away, and others may not have heard of a
// promotion.
func TestReplicasAreThoseThatAnyMasterLists(t *testing.T) {
	const (
		m, x, y  = "m 10.0.0.9:1@2 master - 0 0 1 connected 0-9\n", "x 10.0.0.8:1@2 master - 0 0 2 connected\n", "y 10.0.0.7:1@2 master - 0 0 3 connected\n"
		atM, atX = "m 10.0.0.9:1@2 myself,master - 0 0 1 connected 0-9\n", "x 10.0.0.8:1@2 myself,master - 0 0 2 connected\n"
		ofA, ofB = "a 10.0.0.1:6379@2 slave m 0 0 1 connected\n", "b 10.0.0.2:6379@2,host slave,fail m 0 0 1 disconnected\n"
	)
	for name, row := range map[string]struct {
		views   []string // the first is that of m
		masters int
		want    []string
		fewer   bool
	}{
		"all agree":                       {[]string{atM + x + ofA + ofB, m + atX + ofA + ofB}, 3, []string{a, b}, false},
		"its master was told to forget b": {[]string{atM + x + ofA, m + atX + ofA + ofB}, 3, []string{a, b}, false},
		"another one was":                 {[]string{atM + x + ofA + ofB, m + atX + ofA}, 3, []string{a, b}, false},
		"another address elsewhere":       {[]string{atM + ofA, m + atX + "a 10.0.0.3:6379@2 slave m 0 0 1 connected\n"}, 3, []string{a}, false},
		"replicas of others":              {[]string{atM + x + "a 10.0.0.1:6379@2 slave x 0 0 2 connected\n", m + atX}, 3, nil, false},
		"one has not heard that m was promoted": {[]string{
			atM + "a 10.0.0.1:6379@2 slave m 0 0 1 connected\n", "m 10.0.0.9:1@2 slave,fail y 0 0 1 connected\n" + y + "b 10.0.0.2:6379@2 slave y 0 0 1 connected\n" + atX,
		}, 3, []string{a, b}, false},
		"one knows no m":      {[]string{atM + ofA, atX + ofB}, 3, nil, true},
		"half answer":         {[]string{atM + ofA}, 2, nil, true},
		"one master":          {[]string{atM + ofA}, 1, []string{a}, false},
		"no line that is one": {[]string{"", "\n"}, 1, nil, true},
	} {
		var views []view
		for _, text := range row.views {
			views = append(views, viewOf(text))
		}
		got, err := unionOf(views, row.masters, nil)
		expect.Equal(t, name, got, row.want)
		expect.Equal(t, name+": too few answer", err != nil, row.fewer)
	}
}

// A replica that was away while another was promoted is listed as one of the master before, and may
// come back and be promoted with what it had then: it has to confirm.
func TestReplicaOfTheMasterBefore(t *testing.T) {
	const (
		heir, other     = "h 10.0.0.9:1@2 myself,master - 0 0 4 connected 0-9\n", "o 10.0.0.8:1@2 master - 0 0 2 connected 10-19\n"
		dead, back      = "m 10.0.0.7:1@2 master,fail - 0 0 1 disconnected\n", "m 10.0.0.7:1@2 slave h 0 0 4 connected\n"
		before          = "m 10.0.0.7:1@2 master - 0 0 1 connected 0-9\nh 10.0.0.9:1@2 slave m 0 0 1 connected\n" + other
		behind, unknown = "b 10.0.0.2:6379@2 slave m 0 0 1 connected\n", "b 10.0.0.2:6379@2 slave - 0 0 1 connected\n"
	)
	for name, row := range map[string]struct {
		earlier, now string // lists
		want         []string
	}{
		"it may be of any":                     {"", heir + other + dead + behind, []string{b}},
		"it was of this one":                   {before, heir + other + dead + behind, []string{b}},
		"it was of another one":                {before, strings.Replace(other, "master", "myself,master", 1) + heir + dead + behind, nil},
		"its master is that one's replica now": {before, heir + other + back + behind, []string{"10.0.0.7:1", b}},
		"its master was forgotten":             {before, heir + other + unknown, []string{b}},
		"its master has slots":                 {"", heir + "m 10.0.0.7:1@2 master - 0 0 1 connected 20\n" + behind, nil},
		"its master was promoted after this":   {"", heir + strings.Replace(dead, " 1 ", " 5 ", 1) + behind, nil},
		"nobody lists it":                      {before, heir + other + dead, nil},
	} {
		apart := map[pair]bool{}
		viewOf(row.earlier).split(apart)
		now := viewOf(row.now)
		now.split(apart)
		got, err := unionOf([]view{now}, 1, apart)
		expect.Error(t, name, err, nil)
		expect.Equal(t, name, got, row.want)
	}
}
