//go:build check && linux

package soak

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

var soak = flag.Duration("soak", 0, "how long the soak with faults takes, with a fault a minute; 0 = 10 s, with one every two")

// broken is what a soak with faults knows beside its load.
type broken struct {
	mu      sync.Mutex
	values  []int64         // of the counter, that clients were told
	took    []time.Duration // turns of those that work, since the last sample
	excused int             // answers that say that something is broken
	slow    atomic.Int64    // all pauses are so many hundredths of what they are
}

func (b *broken) tell(value int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values = append(b.values, value)
}

func (b *broken) slower() float64 { return float64(b.slow.Load()) / 100 }

// pace has pauses follow how busy the machine is, so that it is at about 70 %.
func (b *broken) pace(busy float64) {
	slow := b.slow.Load()
	if busy > 0.72 {
		slow = min(slow*11/10+1, 2000)
	} else if busy < 0.68 {
		slow = max(slow*10/11, 10)
	}
	b.slow.Store(slow)
}

// excused reports whether an answer is one that clients get while something is broken, and so not
// wrong.
func (l *load) excused(status int, err error) bool {
	if l.broken == nil {
		return false
	}
	right := err == nil && status < 500 && status != http.StatusConflict && status != http.StatusGone && status != http.StatusTooManyRequests
	if !right {
		l.broken.mu.Lock()
		defer l.broken.mu.Unlock()
		l.broken.excused++
	}
	return !right
}

// timed is a part whose turns are measured.
func (p part) timed(b *broken) part {
	turn := p.turn
	p.turn = func(l *load) {
		start := time.Now()
		turn(l)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.took = append(b.took, time.Since(start))
	}
	return p
}

// scene is all that runs in a soak with faults. The spare is a service with a Redis of its own,
// which loses everything now and then.
type scene struct {
	*rig

	set        *redistest.SentinelSet
	servers    []*redistest.Server // of the set
	spare      *rig
	spareRedis *redistest.Server
}

var faults = []struct {
	name   string
	strike func(*scene)
}{
	{"gateway killed", func(s *scene) { s.gateway.replace(s.t) }},
	{"master killed", func(s *scene) { chaostest.KillMaster(s.set)() }},
	{"service killed", func(s *scene) { s.service.replace(s.t) }},
	{"all keys of the spare lost", func(s *scene) { chaostest.Do(s.t, s.spareRedis, "FLUSHALL") }},
	{"service stopped", func(s *scene) {
		service := s.service.process()
		service.Stop()
		time.Sleep(3 * time.Second)
		service.Resume()
	}},
	{"master stopped, and replaced", func(s *scene) { chaostest.PauseMaster(s.set)() }},
}

// With a fault a minute what processes take stays bounded, no value is told twice, each payment
// keeps its answer, and after each fault all go on.
func TestSoakWithFaults(t *testing.T) {
	span, pause, every := 10*time.Second, 2*time.Second, 200*time.Millisecond
	if *soak > 0 {
		span, pause, every = *soak, time.Minute, time.Second
	}
	s := &scene{set: redistest.StartSentinel(t, 2), spareRedis: redistest.Start(t)}
	s.servers = append(s.set.Replicas(), s.set.Master())
	s.rig = newRigOn(t, s.set.URL(), "--ack", "2")
	s.spare = newRigOn(t, s.spareRedis.URL())
	b := &broken{}
	b.slow.Store(100)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	samples := newSamples(s, b)
	l := beginParts(ctx, s.rig, b, soaking(b))
	flushed := &broken{}
	flushed.slow.Store(100)
	spare := beginParts(ctx, s.spare, flushed, good[:1])
	samples.paid = l.counts[paying].Load
	var sampling sync.WaitGroup
	sampling.Go(func() { samples.take(ctx, every) })
	start := time.Now()
	for i := chaostest.NewLot(t).IntN(len(faults)); time.Since(start) < span; i++ {
		chosen := faults[i%len(faults)]
		t.Logf("%v: %s", time.Since(start).Round(time.Second), chosen.name)
		chosen.strike(s)
		goOn(t, l, spare)
		time.Sleep(min(pause, max(0, span-time.Since(start))))
	}
	stop()
	sampling.Wait()
	l.end()
	spare.end()
	samples.verdict(t, span >= 4*time.Minute)
	t.Logf("%d and %d values, %d answers that say that something is broken\n\n%s", len(b.values), len(flushed.values), b.excused, l.table())
	for _, each := range []*load{l, spare} {
		each.once(t)
		checkLog(t, each.service, each.key)
		checkLog(t, each.gateway, each.key)
	}
}

// soaking are the clients of a soak with faults: those of the mixed load but for names by lot and
// claims in doubt, which stay in Redis for a day or for good.
func soaking(b *broken) (parts []part) {
	for _, p := range bad {
		if !strings.Contains(p.name, "of its own") && p.name != "claim that is left alone" {
			parts = append(parts, p)
		}
	}
	for _, p := range good {
		parts = append(parts, p.timed(b))
	}
	return parts
}

// goOn waits until every kind of client that works has had more turns, and values come.
func goOn(t *testing.T, loads ...*load) {
	t.Helper()
	for _, l := range loads {
		count := func() int { l.broken.mu.Lock(); defer l.broken.mu.Unlock(); return len(l.broken.values) }
		before := count()
		chaostest.Await(t, 2*time.Minute, func() string {
			if count() < before+20 {
				return fmt.Sprintf("%d values more", count()-before)
			}
			return ""
		})
	}
}

// once fails the test if a value was told twice, or a client was told something wrong.
func (l *load) once(t *testing.T) {
	t.Helper()
	close(l.wrong)
	for err := range l.wrong {
		t.Errorf("a client that works: %v", err)
	}
	for _, value := range l.broken.twice() {
		t.Errorf("value %d was told twice", value)
	}
}

// twice are the values that were told more than once.
func (b *broken) twice() (values []int64) {
	chaostest.Twice(b.values, chaostest.Itself, func(_, value int64) { values = append(values, value) })
	return values
}

func TestValuesThatAreToldTwiceAreFound(t *testing.T) {
	b := &broken{}
	for _, value := range []int64{3, 1, 2, 3, 5} {
		b.tell(value)
	}
	if got := b.twice(); !slices.Equal(got, []int64{3}) {
		t.Errorf("got values twice %d, want 3", got)
	}
}
