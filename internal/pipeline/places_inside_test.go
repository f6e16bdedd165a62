package pipeline

import (
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestPlacesOfAClusterAreThoseOfItsOwnSet(t *testing.T) {
	const text = "m 10.0.0.9:1@2 myself,master - 0 0 1 connected 0-9\n" +
		"a 10.0.0.1:6379@2 slave m 0 0 1 connected\n" +
		"b 10.0.0.2:6379@2,host slave,fail m 0 0 1 disconnected\n" +
		"c ::1:6379@2 slave m 0 0 1 connected\n" +
		"d :0@0 slave,noaddr m 0 0 1 disconnected\n" +
		"x 10.0.0.8:1@2 master - 0 0 2 connected 10-19\n" +
		"y 10.0.0.7:1@2 slave x 0 0 2 connected\n" +
		"f 10.0.0.6:1@2 master,fail - 0 0 1 disconnected\n" +
		"g 10.0.0.5:1@2 slave f 0 0 1 disconnected\n"
	got := placesIn(text, "10.0.0.9:1")
	expect.Equal(t, "its own place", got.Own, "10.0.0.9:1")
	expect.Equal(t, "the others", got.Others, map[string]string{"10.0.0.1:6379": "", "10.0.0.2:6379": "", "[::1]:6379": ""})
	expect.Equal(t, "places of other masters", got.Moved, []string{"10.0.0.8:1", "10.0.0.7:1"})
}

// listOf are places of which a and b have to confirm.
func listOf(t *testing.T) *places {
	t.Helper()
	p := &places{}
	fresh, came := p.next(Places{Own: "m:1", Others: map[string]string{"a:1": "r1", "b:1": ""}, Moved: []string{"c:1"}}, "r0", nil)
	p.replace(fresh, came)
	return p
}

func TestWordThatNamesAllPlacesNeedsNoScript(t *testing.T) {
	p := listOf(t)
	expect.Equal(t, "the list for a script", p.text(), "r0@m:1,r1@a:1,@b:1")
	for list, want := range map[string]bool{
		"r1@a:1,@b:1,r0@m:1":   true,
		"r1@a:1,r2@b:1,r0@m:1": true, // the run of b is not known here
		"r9@a:1,@b:1,r0@m:1":   false, "@a:1,@b:1,r0@m:1": false, "r1@a:1,r0@m:1": false, "r1@a:1,@b:1,@d:1,r0@m:1": false, "": false,
	} {
		expect.Equal(t, "noted as "+list, p.noted(list), want)
	}
}

func TestPlaceConfirmsByItsOwnLine(t *testing.T) {
	p := listOf(t)
	line := func(place string, offset int64) link { return link{place, true, offset} }
	for name, row := range map[string]struct {
		links   []link
		n       int
		missing string
	}{
		"both":                       {[]link{line("a:1", 10), line("b:1", 11)}, 2, ""},
		"one lags":                   {[]link{line("a:1", 10), line("b:1", 9)}, 1, "b:1"},
		"another stands in":          {[]link{line("a:1", 10), line("d:1", 10)}, 1, "b:1, which is not attached"},
		"one loads":                  {[]link{line("a:1", 10), {"b:1", false, 0}}, 1, "b:1"},
		"one loads by two channels":  {[]link{line("a:1", 10), line("b:1", 10), {"b:1", false, 0}}, 2, ""},
		"two servers from one place": {[]link{line("a:1", 10), line("b:1", 10), line("b:1", 10)}, 1, "b:1"},
		"nobody but a, which lags":   {[]link{line("a:1", 9)}, 0, "a:1 b:1, which is not attached"},
	} {
		n, missing := p.confirmed(row.links, 10)
		slices.Sort(missing)
		expect.Equal(t, name+": how many", n, row.n)
		expect.Equal(t, name+": who does not", strings.Join(missing, " "), row.missing)
	}
}

// A replica that has come while the list was read has to confirm, too. A place that a script names
// leaves if it belongs to another master, unless the script finds it attached.
func TestPlacesThatComeAndLeave(t *testing.T) {
	p := listOf(t)
	expect.Equal(t, "one more is attached", p.attach([]link{{"a:1", true, 1}, {"d:1", true, 1}}), true)
	expect.Equal(t, "the same again", p.attach([]link{{"d:1", true, 1}}), false)
	fresh, came := p.next(Places{Own: "m:1", Others: map[string]string{"a:1": "r1"}, Moved: []string{"c:1"}}, "r0", nil)
	p.attach([]link{{"e:1", true, 1}})
	p.replace(fresh, came)
	expect.Equal(t, "the places", p.text(), "r0@m:1,r1@a:1,@d:1,@e:1")
	p.add([]string{"@c:1", "r7@f:1"})
	expect.Equal(t, "with those of a word", p.text(), "r0@m:1,r1@a:1,-@c:1,@d:1,@e:1,+@f:1")
	expect.Equal(t, "how many have to confirm", p.others(), 4)
	p.add([]string{"@c:1"})
	expect.Equal(t, "and one is attached", p.others(), 5)
}

func TestKeyDBIsToldByItsInfo(t *testing.T) {
	expect.Equal(t, "Redis", keyDB(""), "")
	expect.Contains(t, "KeyDB", keyDB("# KeyDB\r\nmvcc_depth:0\r\n"), "WAIT")
}
