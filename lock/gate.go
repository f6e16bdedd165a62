package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// gates let one goroutine of the process at a time ask Redis for an exclusive lock: a process has
// one place in a lock's queue, whatever the number of its goroutines.
type gates struct {
	mu sync.Mutex
	of map[string]*gate // by the lock's name, those that a goroutine has passed
}

// gate is passed by those that ask, one as a rule. The others wait, in the order of arrival.
type gate struct {
	asking  int
	waiting []chan struct{} // each is closed when its goroutine has passed
}

// pass waits at the gate of a name, and reports false if the context ended first. After true, leave
// has to be called.
func (s *gates) pass(ctx context.Context, name string) bool {
	s.mu.Lock()
	g := s.of[name]
	if g == nil {
		if s.of == nil {
			s.of = map[string]*gate{}
		}
		s.of[name] = &gate{asking: 1}
		s.mu.Unlock()
		return true
	}
	passed := make(chan struct{})
	g.waiting = append(g.waiting, passed)
	s.mu.Unlock()
	select {
	case <-passed:
		step.At("lock: was let through the gate")
		return true
	case <-ctx.Done():
	}
	step.At("lock: gave up at the gate")
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(g.waiting, passed); at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	} else {
		s.leaveLocked(name)
	}
	return false
}

// leave ends what pass began, and lets the next one pass.
func (s *gates) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(name)
}

func (s *gates) leaveLocked(name string) {
	g := s.of[name]
	if g.asking--; g.asking > 0 {
		return
	}
	if len(g.waiting) == 0 {
		delete(s.of, name)
		return
	}
	g.asking = 1
	close(g.waiting[0])
	g.waiting = g.waiting[1:]
}

// open lets all pass that wait, since one that asks has no answer: each then waits for Redis as
// long as if it were alone.
func (s *gates) open(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.of[name]
	for _, passed := range g.waiting {
		g.asking++
		close(passed)
	}
	g.waiting = nil
}

// obtain asks for a lock, in its turn among the goroutines of the process.
func (l *Locks) obtain(ctx context.Context, a *asker) (Grant, error) {
	if !a.gated {
		return l.grant(ctx, a)
	}
	began := time.Now()
	waiting, cancel := waitContext(ctx, a.Wait)
	defer cancel()
	if !l.gates.pass(waiting, a.name) {
		return Grant{}, refused(ctx, l.named(ctx, a.name, &HeldError{Left: -1}))
	}
	defer l.gates.leave(a.name)
	if a.Wait > 0 {
		a.Wait = max(a.Wait-time.Since(began), time.Millisecond)
	}
	return l.grant(ctx, a)
}

// unanswered records that a request has no answer of Redis.
func (l *Locks) unanswered(a *asker) {
	if a.gated {
		l.gates.open(a.name)
	}
}
