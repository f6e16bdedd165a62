package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
)

// Requests of one process that ask the same of Redis wait in one local queue. The first of them
// asks Redis for all. A granted lease is handed on from one to the next within the process, without
// a request, as often as the grant has fences of its own: see [lease]. Then it is given back, and
// the first of the remaining waiters asks. So a waiter of another process is overtaken by at most
// that many later ones.
//
// The first also asks once it has waited for longer than is worth a round trip. So people see it in
// the queue at Redis, and it has its place there if the holder's lease is lost or broken without
// this process knowing.

// handings is how many fences after its own a grant has to itself: run_length of
// scripts/lib/lock_run.lua.
const handings = 16

// sameness is what requests must have in common to hand a lock on to one another. One owner and one
// TTL, since Redis goes on showing the first owner, and the lock must become free as soon after a
// crash as the holder has asked for.
type sameness struct {
	name, owner string
	ttl         time.Duration
}

// queues are the local queues of all locks that this process holds or waits for.
type queues struct {
	unnoticed time.Duration // how long the first waits for local holders only

	mu      sync.Mutex
	of      map[sameness]*queue
	sweepAt int // at this many queues, those whose holders ended without a release are dropped
}

// queue is the local queue of requests that are the same, while it has a lease or a waiter.
type queue struct {
	// will be handed on if possible; nil = none, and the first waiter asks Redis
	lease   *lease
	waiting []*asker
}

// lease is what Redis has granted under one token, and what this process knows of it. Several
// [Lock] values hold it one after the other.
type lease struct {
	grant   Grant
	kind    sameness
	listing listing

	mu    sync.Mutex    // guards what renewals change
	sent  time.Time     // before the last request that was confirmed
	good  time.Duration // how long from then it is good
	doubt bool          // a renewal was sent and is not confirmed

	// The following are guarded by the mutex of the queues.
	holder context.Context // of its current Lock; nil while it goes from one to the next
	handed int             // how often it was handed on
}

func newLease(a *asker, grant Grant) *lease {
	return &lease{grant: grant, kind: a.kind, sent: grant.sent, good: grant.goodFor()}
}

// confirmed records that a request which was sent at that time was granted.
func (e *lease) confirmed(sent time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent, e.good, e.doubt = sent, e.grant.TTL, false
}

// doubted records that a renewal is about to be sent.
func (e *lease) doubted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubt = true
}

// since is when the last confirmed request was sent, and how long from then it is good.
func (e *lease) since() (sent time.Time, good time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent, e.good
}

// fresh reports whether half of the lease remains by both clocks, and no renewal is unconfirmed.
func (e *lease) fresh() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.doubt && keepalive.Age(e.sent) <= e.good/2
}

// current is the grant of the current holder: with its own fence and the remaining lease.
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

// join puts a request at the end of its queue, and reports whether it asks Redis for all.
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

// tidyLocked drops a queue without a holder and waiters.
func (s *queues) tidyLocked(kind sameness, l *queue) {
	if len(l.waiting) == 0 && !l.heldLocked() && s.of[kind] == l {
		delete(s.of, kind)
	}
}

// heldLocked reports whether the queue has a holder that can hand its lease on, as far as is known.
func (l *queue) heldLocked() bool {
	return l.lease != nil && (l.lease.holder == nil || l.lease.holder.Err() == nil)
}

// askLocked makes the first ask Redis, unless a local holder can hand its lease on.
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

// first reports whether a request is the first of its queue, which then asks Redis.
func (s *queues) first(a *asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.of[a.kind]; l == nil || len(l.waiting) == 0 || l.waiting[0] != a {
		return false
	}
	a.asks = true
	return true
}

// askAll makes every request of a queue ask Redis for itself, since the first had no answer.
func (s *queues) askAll(a *asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.of[a.kind]; l != nil && slices.Contains(l.waiting, a) {
		for _, other := range l.waiting {
			other.askLocked()
		}
	}
}

// hold takes a request, to which Redis has granted its lock, out of its queue. It returns the lease
// that was handed on to it meanwhile, which Redis does not have any more.
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

// remove takes an abandoned request out of its queue, and returns a lease just handed on to it.
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

// begun records the context of the Lock that has a lease now.
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
// if the lease was handed on already.
func (s *queues) token(k *Lock) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.lease.handed != k.turn {
		return ""
	}
	s.keepLocked(k.lease)
	return k.lease.grant.Token
}

// keepLocked makes sure that no request waits for a lease to be handed on.
func (s *queues) keepLocked(e *lease) {
	if l := s.of[e.kind]; l != nil && l.lease == e {
		l.lease = nil
		l.askLocked()
		s.tidyLocked(e.kind, l)
	}
}

// handOn gives a lease, whose holder's context has ended, to the first local waiter. If it cannot,
// the lease is to be given back.
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
		s.keepLocked(e) // the next one has a place in the queue at Redis when it is given back
	}
	return true
}

// errHanded means that a holder of this process has handed a lock on.
var errHanded = errors.New("lock: handed on")

// obtain asks for a lock in the way that its request asks for.
func (l *Locks) obtain(ctx context.Context, a *asker) (*lease, error) {
	a.enters = !a.WholeTTL
	if a.alone || a.once {
		grant, err := l.grant(ctx, a)
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
	grant, err := l.grant(ctx, a)
	if err != nil {
		return l.unless(ctx, a, err)
	}
	granted := newLease(a, grant)
	if stale := l.queues.hold(a, granted); stale != nil {
		l.later(ctx, func(ctx context.Context) { l.giveBack(ctx, stale) })
	}
	return granted, nil
}

// waitLocal waits in the local queue. Without an error the request is to ask Redis.
func (l *Locks) waitLocal(ctx context.Context, a *asker) error {
	began, bounded := time.Now(), a.Wait > 0
	waiting, cancel := waitContext(ctx, a.Wait)
	defer cancel()
	polls := time.NewTicker(l.queues.unnoticed)
	defer polls.Stop()
	for {
		select {
		case <-a.turn:
			return errHanded
		case <-waiting.Done():
			return refused(ctx, &HeldError{Left: -1})
		case <-polls.C:
			if !l.queues.first(a) {
				continue
			}
		case <-a.mustAsk:
		}
		if !bounded {
			return nil
		}
		if a.Wait -= time.Since(began); a.Wait > 0 {
			return nil
		}
		<-waiting.Done()
	}
}

// unless returns the lease that was handed on to a request within this process, if that ended its
// wait. If the lease came after the request was given up, the next one gets it.
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

// pass gives a lease to the next waiter, here or in another process.
func (l *Locks) pass(ctx context.Context, e *lease) {
	if !l.queues.handOn(e) {
		l.giveBack(ctx, e)
	}
}

// giveBack gives a lease back that has no holder.
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

// later runs a function in the background. Only Close waits for it.
func (l *Locks) later(ctx context.Context, do func(ctx context.Context)) {
	l.background.Go(func() { do(context.WithoutCancel(ctx)) })
}
