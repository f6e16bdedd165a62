//go:build check && linux

package servers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

// exceptions are what a fault may do, by docs/guarantees.md and docs/operations.md.
type exceptions struct {
	lossy      bool              // values may be left out, as a counter moves
	clocks     bool              // of servers are set: a lease may end early
	runsAgain  func(*token) bool // a token whose function may start again; nil = none
	connection int               // connections that may have begun: an addition of each is no one's
}

// check asks for every token once more, ends the load, and fails the test for what must not be,
// of which it returns how much there is.
func (l *load) check(e exceptions, service *client.Client) (broken int) {
	l.t.Helper()
	l.end()
	for _, one := range l.tokens {
		l.use(l.t.Context(), "repeat", service, one)
	}
	last, err := service.Counter(l.t.Context(), counterName)
	expect.Error(l.t, "reading the counter", err, nil)
	l.t.Logf("%d values, %d grants, %d ids, %d tokens; %v", len(l.values), len(l.held), len(l.ids), len(l.tokens), l)
	faults := l.faults(e, last)
	for _, fault := range faults[:min(len(faults), 10)] {
		l.t.Errorf("broken: %s", fault)
	}
	if len(l.values) < 50 || len(l.held) < 10 || len(l.ids) < 200 || len(l.tokens) < 10 {
		l.t.Error("too few to say anything")
	}
	return len(faults)
}

// faults are what must not be, with the last value of the counter.
func (l *load) faults(e exceptions, last int64) (all []string) {
	for _, err := range l.odd {
		all = append(all, err.Error())
	}
	all = append(all, countFaults(l.values)...)
	all = append(all, lockFaults(l.held, e.clocks)...)
	chaostest.Twice(l.ids, chaostest.Itself, func(_, id snowflake.ID) { all = append(all, fmt.Sprintf("id %d was stamped twice", id)) })
	for _, one := range l.tokens {
		if (one.runs > 1 || len(one.answers) > 1) && (e.runsAgain == nil || !e.runsAgain(one)) {
			all = append(all, fmt.Sprintf("a token's function started %d times, with answers %v", one.runs, one.answers))
		}
	}
	gaps, unknown := int(last)-len(l.values), l.class["count"][client.ErrUnknownOutcome]+e.connection
	if !e.lossy && gaps > unknown {
		all = append(all, fmt.Sprintf("the counter is %d, %d values were told, and only %d calls are of unknown outcome", last, len(l.values), unknown))
	}
	return all
}

// countFaults finds values that were told twice, and calls that were told a value that is no larger
// than one that was told before they began.
func countFaults(all []increment) (faults []string) {
	value := func(one increment) int64 { return one.value }
	chaostest.Twice(all, value, func(_, one increment) { faults = append(faults, fmt.Sprintf("value %d was told twice", one.value)) })
	call := func(one increment) chaostest.Span { return span(one.begun, one.returned) }
	chaostest.Falling(all, call, func(one increment) (least, most int64) { return one.value, one.value }, func(before, one increment) {
		faults = append(faults, fmt.Sprintf("%d was told by a call that began after %d had been told", one.value, before.value))
	})
	return faults
}

// span is by the clock that runs monotonically, where moments have that.
func span(from, to time.Time) chaostest.Span {
	return chaostest.Span{From: int64(from.Sub(start)), To: int64(to.Sub(start))}
}

var start = time.Now()

// lockFaults finds grants whose fences do not rise, and two that are believed in at once. Where two
// calls ran at once, the reply about the earlier grant may be the later one.
func lockFaults(all []held, clocks bool) (faults []string) {
	call := func(one held) chaostest.Span { return span(one.begun, one.first) }
	chaostest.Falling(all, call, func(one held) (least, most int64) { return one.fence, one.fence }, func(before, one held) {
		faults = append(faults, fmt.Sprintf("fence %d after %d", one.fence, before.fence))
	})
	if clocks {
		return faults
	}
	chaostest.Overlaps(all, func(one held) chaostest.Span { return span(one.first, one.last) }, func(before, one held) {
		faults = append(faults, fmt.Sprintf("the lock was granted with fence %d %v before the holder of %d stopped believing",
			one.fence, before.last.Sub(one.first), before.fence))
	})
	return faults
}

// What is put in, is found, and nothing else.
func TestCheckFindsWhatIsPutIn(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	good := func() *load {
		_, stop := context.WithCancel(t.Context())
		t.Cleanup(stop)
		return &load{
			t: t, stop: stop,
			values: []increment{{1, at(0), at(10)}, {3, at(11), at(20)}, {2, at(5), at(30)}},
			held:   []held{{10, at(0), at(1), at(9)}, {11, at(10), at(10), time.Time{}}, {20, at(11), at(12), at(15)}, {19, at(11), at(16), at(17)}},
			tokens: []*token{{runs: 1, answers: map[string]int{"run 1": 2}}},
		}
	}
	for want, spoil := range map[string]func(*load){
		"":                 func(*load) {},
		"told twice":       func(l *load) { l.values[1].value = 2 },
		"began after":      func(l *load) { l.values[2].begun = at(25) },
		"fence 9 after":    func(l *load) { l.held[1].fence = 9 },
		"fence 19 after":   func(l *load) { l.held[3].begun = at(13) },
		"before the hold":  func(l *load) { l.held[0].last = at(11) },
		"stamped twice":    func(l *load) { l.ids = append(l.ids, 7, 5, 7) },
		"started 2 times":  func(l *load) { l.tokens[0].runs = 2 },
		"with answers map": func(l *load) { l.tokens[0].answers["other"]++ },
		"only 0 calls":     func(l *load) { l.values = l.values[:2] },
	} {
		l := good()
		spoil(l)
		found := l.faults(exceptions{}, 3)
		if want == "" && len(found) > 0 || want != "" && !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%q was put in: found %q", want, found)
		}
	}
}
