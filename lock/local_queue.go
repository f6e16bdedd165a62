package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Requests of one process that ask the same of Redis stand in one line here. Whoever is the first
// of it asks Redis for all of them. What is granted is handed on from one to the next within the
// process, as often as the grant has fences to itself, and nobody is asked: see [lease]. Then it is
// given back, and the first of those who are left asks. So no other process waits for longer than
// that many of those who may have come later.
//
// The first asks as well when it has waited for longer than is worth a round trip. So it stands in
// line at Redis where people see it, and has its place there if the holder's lease is lost, or was
// broken, and nobody here knows.

// handings is how many fences behind its own a grant has to itself: run_length of
// scripts/lib/lock_run.lua.
const handings = 16

// sameness is what requests have in common that may hand a lock on to one another. One owner and
// one TTL, since Redis goes on showing the one, and the lock is to be free as long after a crash as
// the holder has asked for.
type sameness struct {
	name, owner string
	ttl         time.Duration
}

// lines are those of a process, of all locks that it holds or waits for.
type queues struct {
	unnoticed time.Duration // how long the first waits for others of its process alone

	mu      sync.Mutex
	of      map[sameness]*queue
	sweepAt int // so many lines are looked through for holders that have ended and never released
}

// line is the one of some requests that are the same. It is there while it has a lease or somebody
// who waits.
type queue struct {
	// that will be handed on if it can; nil = none, and the first of those who wait asks Redis
	lease   *lease
	waiting []*asker
}

// lease is what Redis has granted under one token, and what this process knows of it. One [Lock]
// after the other holds it.
type lease struct {
	grant   Grant
	kind    sameness
	listing listing

	mu    sync.Mutex    // of what renewals change
	sent  time.Time     // before the last request that was confirmed
	good  time.Duration // what that is good for
	doubt bool          // a renewal that was sent is not confirmed

	// What follows is under the mutex of the lines.
	holder context.Context // of the Lock that has it; nil while it goes from one to the next
	handed int             // how often it was handed on
}

func newLease(a *asker, grant Grant) *lease {
	return &lease{grant: grant, kind: a.kind, sent: grant.sent, good: grant.goodFor()}
}

// confirmed notes that a request which was sent at that moment was granted.
func (e *lease) confirmed(sent time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent, e.good, e.doubt = sent, e.grant.TTL, false
}

// doubted notes that a renewal is about to be sent.
func (e *lease) doubted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubt = true
}

// since is when the last request was sent that was confirmed, and for how long from then it is
// good.
func (e *lease) since() (sent time.Time, good time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent, e.good
}

// fresh reports whether at least half of the lease is left, by monotonic and wall time, and nothing
// is in doubt.
func (e *lease) fresh() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.doubt && age(e.sent) <= e.good/2
}

// current is the grant of who has the lease now: a fence of his own, and as long as is left.
func (e *lease) current(handed int) Grant {
	grant := e.grant
	if handed == 0 {
		return grant
	}
	sent, good := e.since()
	grant.Fence += int64(handed)
	grant.Now = e.grant.Now.Add(time.Since(e.grant.sent))
	grant.Since, grant.Until, grant.sent, grant.good = grant.Now, e.grant.Now.Add(sent.Sub(e.grant.sent)+good), sent, good
	return grant
}

// join puts a request at the end of its line, and reports whether it is to ask Redis, which all of
// the others leave to it.
func (s *queues) join(a *asker) (asks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.queueLocked(a.kind)
	l.waiting = append(l.waiting, a)
	if len(l.waiting) == 1 && !l.heldLocked() {
		a.asks = true
		return true
	}
	a.turn, a.mustAsk = make(chan struct{}), make(chan struct{})
	return false
}

func (s *queues) queueLocked(kind sameness) *queue {
	if l := s.of[kind]; l != nil {
		return l
	}
	if s.of == nil {
		s.of = map[sameness]*queue{}
	}
	if len(s.of) >= s.sweepAt {
		for kind, l := range s.of {
			s.tidyLocked(kind, l)
		}
		s.sweepAt = 2*len(s.of) + 64
	}
	l := &queue{}
	s.of[kind] = l
	return l
}

// tidyLocked forgets a line that nobody is in.
func (s *queues) tidyLocked(kind sameness, l *queue) {
	if len(l.waiting) == 0 && !l.heldLocked() && s.of[kind] == l {
		delete(s.of, kind)
	}
}

// heldLocked reports whether somebody has a lease that he is going to hand on, as far as one can
// tell.
func (l *queue) heldLocked() bool {
	return l.lease != nil && (l.lease.holder == nil || l.lease.holder.Err() == nil)
}

// askLocked has the first ask Redis, unless somebody here is going to hand on what he has.
func (l *queue) askLocked() {
	if len(l.waiting) > 0 && !l.heldLocked() {
		l.waiting[0].askLocked()
	}
}

func (a *asker) askLocked() {
	if !a.asks {
		a.asks = true
		close(a.mustAsk)
	}
}

// first reports whether a request is the first of its line, which then asks Redis.
func (s *queues) first(a *asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.of[a.kind]; l == nil || len(l.waiting) == 0 || l.waiting[0] != a {
		return false
	}
	a.asks = true
	return true
}

// scatter has everybody who stands in a line with a request ask Redis for himself, since its own
// question had no answer.
func (s *queues) askAll(a *asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.of[a.kind]; l != nil && slices.Contains(l.waiting, a) {
		for _, other := range l.waiting {
			other.askLocked()
		}
	}
}

// hold takes a request, to which Redis has granted its lock, out of its line, and returns what
// somebody here has handed on to it meanwhile: a lease that Redis has no more.
func (s *queues) hold(a *asker, granted *lease) (stale *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.queueLocked(a.kind)
	if at := slices.Index(l.waiting, a); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
	l.lease = granted
	return a.handed
}

// part takes a request out of its line that is given up, and returns what it was handed on just
// then.
func (s *queues) remove(a *asker) (handed *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.handed != nil {
		return a.handed
	}
	if l := s.of[a.kind]; l != nil {
		if at := slices.Index(l.waiting, a); at >= 0 {
			l.waiting = slices.Delete(l.waiting, at, at+1)
		}
		l.askLocked()
		s.tidyLocked(a.kind, l)
	}
	return nil
}

// begun notes the context of the Lock that has a lease now.
func (s *queues) begun(holder context.Context, e *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.holder = holder
}

// handings is how often a lease was handed on.
func (s *queues) handings(e *lease) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.handed
}

// token is that of a Lock's lease, which is not handed on from now on: others may know it. It is ""
// if it was handed on already.
func (s *queues) token(k *Lock) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.lease.handed != k.turn {
		return ""
	}
	s.keepLocked(k.lease)
	return k.lease.grant.Token
}

// keepLocked sees to it that nobody waits for a lease to be handed on.
func (s *queues) keepLocked(e *lease) {
	if l := s.of[e.kind]; l != nil && l.lease == e {
		l.lease = nil
		l.askLocked()
		s.tidyLocked(e.kind, l)
	}
}

// handOn gives a lease, whose holder has been told that he has it no more, to the first who waits
// for it here. If it cannot, the lease is to be given back.
func (s *queues) handOn(e *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of[e.kind]
	may := l != nil && l.lease == e && len(l.waiting) > 0 && l.waiting[0].turn != nil && e.handed < handings && e.fresh()
	if !may {
		s.keepLocked(e)
		return false
	}
	next := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	e.handed++
	e.holder = nil
	next.handed = e
	close(next.turn)
	if e.handed == handings {
		s.keepLocked(e) // the next one is in line at Redis when it is given back
	}
	return true
}

// errHanded says that somebody of this process has handed a lock on.
var errHanded = errors.New("lock: handed on")

// obtain asks for a lock in the way that its request says.
func (l *Locks) obtain(ctx context.Context, a *asker, wait bool) (*lease, error) {
	a.enters = !a.WholeTTL
	if a.alone || !wait {
		grant, err := l.grant(ctx, a, wait)
		if err != nil {
			return nil, err
		}
		granted := newLease(a, grant)
		if !a.alone {
			l.queues.hold(a, granted)
		}
		return granted, nil
	}
	if !l.queues.join(a) {
		if err := l.waitLocal(ctx, a); err != nil {
			return l.unless(ctx, a, err)
		}
	}
	grant, err := l.grant(ctx, a, true)
	if err != nil {
		return l.unless(ctx, a, err)
	}
	granted := newLease(a, grant)
	if stale := l.queues.hold(a, granted); stale != nil {
		l.later(ctx, func(ctx context.Context) { l.giveBack(ctx, stale) })
	}
	return granted, nil
}

// queue waits in the line of this process. Without an error the request is to ask Redis.
func (l *Locks) waitLocal(ctx context.Context, a *asker) error {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	began := time.Now()
	if a.Wait > 0 {
		waiting, cancel = context.WithTimeout(ctx, a.Wait)
	}
	defer cancel()
	polls := time.NewTicker(l.queues.unnoticed)
	defer polls.Stop()
	for {
		select {
		case <-a.turn:
			return errHanded
		case <-waiting.Done():
			return refused(ctx, &Held{Left: -1})
		case <-polls.C:
			if !l.queues.first(a) {
				continue
			}
		case <-a.mustAsk:
		}
		if a.Wait == 0 {
			return nil
		}
		if a.Wait -= time.Since(began); a.Wait > 0 {
			return nil
		}
		<-waiting.Done()
	}
}

// unless returns what a request was handed on within this process, if that is how its waiting
// ended. If that came when it had been given up, the next one has it.
func (l *Locks) unless(ctx context.Context, a *asker, err error) (*lease, error) {
	handed := l.queues.remove(a)
	switch {
	case handed == nil:
		return nil, err
	case !errors.Is(err, errHanded):
		l.pass(ctx, handed)
		return nil, err
	case a.placed:
		l.later(ctx, func(ctx context.Context) { l.takeBack(ctx, a) })
	}
	return handed, nil
}

// pass gives a lease to the next, here or elsewhere.
func (l *Locks) pass(ctx context.Context, e *lease) {
	if !l.queues.handOn(e) {
		l.giveBack(ctx, e)
	}
}

// giveBack gives a lease back that nobody holds.
func (l *Locks) giveBack(ctx context.Context, e *lease) {
	if err := l.release(ctx, e); err != nil && !errors.Is(err, ErrLost) {
		l.log.WarnContext(ctx, "lock: a grant could not be given back, and ends by itself", "name", e.grant.Name, "error", err)
	}
}

// release gives a lease back.
func (l *Locks) release(ctx context.Context, e *lease) error {
	ctx, cancel := l.releaseContext(ctx)
	defer cancel()
	listed := e.listing.stop()
	free, err := l.giveLease(ctx, e.grant.keys, e.grant.Token)
	if listed && free {
		l.unlist(ctx, e.grant.Name)
	}
	return err
}

// later does something that nobody has to wait for but Close.
func (l *Locks) later(ctx context.Context, do func(ctx context.Context)) {
	l.background.Go(func() { do(context.WithoutCancel(ctx)) })
}
