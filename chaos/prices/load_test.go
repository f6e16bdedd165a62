//go:build nightly

package prices

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// What clients under load ask for.
const (
	values = "values" // of a counter
	locks  = "locks"
	ids    = "ids"    // of the service's own worker ids
	leases = "leases" // of worker ids
)

// A client rests between two requests, so that the load is small beside what the machine can do.
var rests = map[string]time.Duration{values: 40 * time.Millisecond, locks: 40 * time.Millisecond, ids: 100 * time.Millisecond, leases: 300 * time.Millisecond}

const (
	lockTTL    = time.Second
	idsAtOnce  = 20
	lockMargin = lockTTL / 10 // by which a holder stops before its lease ends
)

// handed is one thing that a client was given: a value, an id, a lock's fence or a worker id. From
// begin to end it was the client's alone, where that ends.
type handed struct {
	what       string
	value      int64
	begin, end time.Time
}

// load is what the clients of one ack were given. It may be used by several goroutines.
type load struct {
	ack      int
	services []*service

	mu       sync.Mutex
	given    []handed
	moments  map[string][]time.Time // of each answer that gave something, in their order
	refusals map[string]string      // the newest of each kind
}

// begin starts a client of each kind at each service. They end with the context; wait waits.
func (l *load) begin(ctx context.Context) (wait func()) {
	l.moments, l.refusals = map[string][]time.Time{}, map[string]string{}
	var clients sync.WaitGroup
	for _, s := range l.services {
		for kind, ask := range map[string]func(context.Context, *service) ([]handed, error){values: l.count, locks: l.lock, ids: l.stamp, leases: l.lease} {
			clients.Go(func() {
				for ctx.Err() == nil {
					given, err := ask(ctx, s)
					l.note(kind, given, err)
					select {
					case <-ctx.Done():
					case <-time.After(rests[kind]):
					}
				}
			})
		}
	}
	return clients.Wait
}

func (l *load) note(kind string, given []handed, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refusals[kind] = err.Error()
		return
	}
	l.given = append(l.given, given...)
	l.moments[kind] = append(l.moments[kind], time.Now())
}

func (l *load) count(ctx context.Context, s *service) ([]handed, error) {
	value, err := s.count(ctx)
	return []handed{{what: values, value: value}}, err
}

func (l *load) stamp(ctx context.Context, s *service) ([]handed, error) {
	texts, err := s.ids(ctx, idsAtOnce)
	var given []handed
	for _, text := range texts {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		given = append(given, handed{what: ids, value: id})
	}
	return given, err
}

// lease leases a worker id and lets it end with its window.
func (l *load) lease(ctx context.Context, s *service) ([]handed, error) {
	var answer struct {
		WorkerID  int64     `json:"worker_id"`
		NotBefore time.Time `json:"not_before"`
		NotAfter  time.Time `json:"not_after"`
	}
	err := s.ask(ctx, "POST", "/worker/"+name, struct{}{}, &answer)
	return []handed{{leases, answer.WorkerID, answer.NotBefore, answer.NotAfter}}, err
}

// lock takes the lock, holds it for a moment and gives it back.
func (l *load) lock(ctx context.Context, s *service) ([]handed, error) {
	asked := time.Now()
	granted, err := s.lock(ctx, lockTTL)
	if err != nil {
		return nil, err
	}
	given := handed{what: locks, value: granted.Fence, begin: time.Now()}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
	given.end = time.Now()
	if last := asked.Add(lockTTL - lockMargin); given.end.After(last) {
		given.end = last
	}
	_ = s.unlock(context.WithoutCancel(ctx), granted) // else it ends by itself
	return []handed{given}, nil
}

// longest is the longest time between two answers that gave something of a kind, from a moment on.
func (l *load) longest(kind string, from, to time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := from
	for _, at := range append(slices.Clone(l.moments[kind]), to) {
		if at.Before(from) || at.After(to) {
			continue
		}
		longest = max(longest, at.Sub(last))
		last = at
	}
	return longest
}

// since reports whether something of a kind was given after a moment, and else why not.
func (l *load) since(kind string, from time.Time) (given bool, refusal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	moments := l.moments[kind]
	return len(moments) > 0 && moments[len(moments)-1].After(from), l.refusals[kind]
}

// take returns what was given since the last time.
func (l *load) take() []handed {
	l.mu.Lock()
	defer l.mu.Unlock()
	given := l.given
	l.given = nil
	return given
}

// tally counts what was handed out, and what of it was handed out twice: values and ids that were
// seen before, and worker ids and locks that two had at once.
type tally struct {
	seen  map[handed]bool
	spans map[string][]handed
	count map[string]int
	twice map[string]int
}

func newTally() *tally {
	return &tally{seen: map[handed]bool{}, spans: map[string][]handed{}, count: map[string]int{}, twice: map[string]int{}}
}

// add judges what was given, beside all that was given before.
func (t *tally) add(given []handed) (twice map[string]int) {
	twice = map[string]int{}
	for _, one := range given {
		t.count[one.what]++
		if one.what == values || one.what == ids {
			if t.seen[one] {
				twice[one.what]++
			}
			t.seen[one] = true
			continue
		}
		if t.atOnce(one) {
			twice[one.what]++
		}
		t.spans[one.what] = append(t.spans[one.what], one)
	}
	for what, n := range twice {
		t.twice[what] += n
	}
	return twice
}

// atOnce reports whether another one had it at the same time. Of locks there is one alone, and its
// value is a fence; a worker id is its value.
func (t *tally) atOnce(one handed) bool {
	return slices.ContainsFunc(t.spans[one.what], func(other handed) bool {
		return (one.what == locks || one.value == other.value) && one.begin.Before(other.end) && other.begin.Before(one.end)
	})
}

func TestTallyFindsWhatIsHandedOutTwice(t *testing.T) {
	from := time.Now()
	span := func(what string, value int64, begin, end int) handed {
		return handed{what, value, from.Add(time.Duration(begin) * time.Second), from.Add(time.Duration(end) * time.Second)}
	}
	for _, row := range []struct {
		name  string
		given []handed
		twice int
	}{
		{"values that rise", []handed{{what: values, value: 1}, {what: values, value: 2}}, 0},
		{"a value and an id that are equal", []handed{{what: values, value: 1}, {what: ids, value: 1}}, 0},
		{"a value twice", []handed{{what: values, value: 1}, {what: values, value: 1}}, 1},
		{"an id three times", []handed{{what: ids, value: 1}, {what: ids, value: 1}, {what: ids, value: 1}}, 2},
		{"a lock one after the other", []handed{span(locks, 1, 0, 2), span(locks, 2, 2, 4)}, 0},
		{"a lock at once", []handed{span(locks, 1, 0, 2), span(locks, 2, 1, 4)}, 1},
		{"two worker ids at once", []handed{span(leases, 1, 0, 2), span(leases, 2, 1, 4)}, 0},
		{"one worker id at once", []handed{span(leases, 1, 0, 2), span(leases, 1, 1, 4)}, 1},
		{"one worker id, the next window first", []handed{span(leases, 1, 2, 4), span(leases, 1, 0, 2)}, 0},
	} {
		all := newTally()
		all.add(row.given)
		sum := 0
		for _, n := range all.twice {
			sum += n
		}
		if sum != row.twice {
			t.Errorf("%s: got %d twice, want %d", row.name, sum, row.twice)
		}
	}
}
