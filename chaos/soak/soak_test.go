//go:build check && linux

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Whatever strangers do, what a service and a gateway take stays bounded, those that work are
// answered right, and when all have left it is as it was.
func TestMixedLoadTakesNoMoreAndMore(t *testing.T) {
	span, every := 10*time.Second, 100*time.Millisecond
	if *minutes > 0 {
		span, every = time.Duration(*minutes*float64(time.Minute)), time.Second
	}
	long := span >= time.Minute
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "200MiB") // as in a pod of the chart, of 256 MiB
	r := newRig(t)
	seen := r.watched()
	ctx, stop := context.WithTimeout(t.Context(), span)
	defer stop()
	l := begin(ctx, r)
	for tick := time.NewTicker(every); ctx.Err() == nil; {
		for _, one := range seen {
			one.seen = append(one.seen, r.look(one.process))
		}
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
		}
	}
	l.end()
	var rows []row
	for _, one := range seen {
		rows = append(rows, one.left(t, r, long)...)
		name, peak := one.process.name, slices.MaxFunc(one.seen, func(a, b figures) int { return a.memory - b.memory }).memory
		t.Logf("%s under GOMEMLIMIT=200MiB: before %d MiB, peak %d MiB, after %d MiB", name, one.before.memory>>10, peak>>10, r.look(one.process).memory>>10)
		if peak > 256<<10 {
			t.Errorf("%s has %d MiB at its peak, want 256 at most", name, peak>>10)
		}
	}
	t.Logf("%v of mixed load\n\n%s\n%s", span, table(rows), l.table())
	for _, row := range rows {
		row.check(t, true)
	}
	close(l.wrong)
	for err := range l.wrong {
		t.Errorf("a client that works: %v", err)
	}
	for name, done := range l.counts {
		if done.Load() == 0 {
			t.Errorf("this never happened: %s", name)
		}
	}
	for _, one := range seen {
		checkLog(t, one.process, r.key)
	}
}

func (r *rig) look(p *process) figures {
	r.t.Helper()
	f, err := p.look()
	if err != nil {
		r.t.Fatalf("%s is gone: %v\n%s", p.name, err, p.process().Log)
	}
	return f
}

// pools is how many the service holds an id of at most, with two goroutines each: of any pool that
// clients have named.
const pools = 64

// compare tells what is left behind by those who have left. Connections to Redis and from the
// gateway stay, up to their bound, and what serves them.
func compare(name string, before, after figures) string {
	if after.descriptors > before.descriptors+100 || after.goroutines > before.goroutines+2*pools+100 {
		return fmt.Sprintf("%s has %d descriptors and %d goroutines, and had %d and %d", name, after.descriptors, after.goroutines, before.descriptors, before.goroutines)
	}
	return ""
}

// checkLog looks that nothing strange was said, and no secret.
func checkLog(t *testing.T, p *process, key string) {
	t.Helper()
	for _, log := range p.said {
		said := log.String()
		if strings.Contains(said, key) || strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") {
			t.Errorf("%s said:\n%s", p.name, said)
		}
	}
}

// table lists how often each kind of client had its turn.
func (l *load) table() string {
	var b strings.Builder
	b.WriteString("| client | turns |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, l.counts[name].Load())
	}
	return b.String()
}
