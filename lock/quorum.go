package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coatcheck/coatcheck/internal/quorum"
	"github.com/coatcheck/coatcheck/redisstore"
)

// What a quorum's locks refuse besides.
var (
	errQuorumMode  = fmt.Errorf("%w: a quorum grants exclusive locks only", ErrRequest)
	errQuorumToken = fmt.Errorf("%w: a quorum makes the tokens itself", ErrRequest)
)

// QuorumLocks are exclusive locks that a majority of independent Redis servers grants, as Redlock
// does, with a fence. It is safe for concurrent use.
//
// What it promises in addition to [Locks]: any minority of the servers may be lost, stopped, cut
// off or without its data, and still no two hold at once, fences rise, and locks are granted and
// renewed, without a failover and without replication that has to be trusted. On each server a lock
// is one of [Locks]. So clients of [Locks] and plain ones of redislock on a single server and these
// exclude each other there: a client that has a name on a majority keeps a quorum out, and a client
// in the queue of one server gets the lock there when a quorum gives it back.
//
// What it needs, and does not do:
//
//   - Servers that know nothing of each other. Each may be a Sentinel set or a cluster, but then a
//     failover within that one has to be trusted again.
//   - Servers' clocks that run alike: a lease counts 1 % of its TTL and 2 ms less than for [Locks].
//     A server whose clock is set forward ends leases early, and counts as one that has lost them.
//     For fences the clocks must be within Config.Skew of each other.
//   - A server that may have lost leases grants nothing until they have ended: Config.AfterLoss is
//     [WaitAfterLoss] unless it is set to [GrantAfterLoss]. Then any number of servers may restart
//     empty. With GrantAfterLoss, an operator that restarts a server without its data has to keep
//     it down for LongestTTL. This holds before the first lock of all as well.
//   - No queue: a waiter asks again after a random while, up to a fifth of Config.Window, and the
//     first to ask gets it. No shared locks, no permits: ErrRequest.
//   - Two round trips to grant a lock, to the slowest server of the fastest majority; one to renew
//     it.
//   - A paused holder learns of a loss late here as well: the resource checks the fence.
//
// # The fence
//
// Each server mints fences that rise there. The largest of a majority's does not rise by itself:
// three servers mint 5, 2 and 9 for one holder, whose fence is 9; the third goes away, and the
// first two mint 6 and 3 for the next, whose fence would be 6. So the largest is written back
// before the lock counts as granted, to a majority of servers on which the holder still has it. Any
// later majority has one of them in it, which mints a larger one.
//
// # Errors
//
// The answer of a lock is that of the servers together: if a majority has answered and not granted,
// it is a *[HeldError] or [ErrInDoubt], whatever the rest does. If fewer answer it is
// redisstore.ErrUnavailable: nothing was done, or all that was done was taken back. It is
// redisstore.ErrUnknownOutcome if the request may still have something at a majority: then the lock
// may be taken, without a holder, until the TTL has passed.
type QuorumLocks struct {
	quorum *quorum.Quorum
	config Config
	each   []*Locks // of each server
}

// OpenQuorum returns the locks of the servers that the URLs name, an odd number of them, 3 or more;
// each URL may be of any form of [redisstore.Config].URL. The rest of the store's configuration
// holds for each; its URL and DataDir stay empty. Several times embedded: are as many stores in
// this process, for tests. AfterLoss "" is WaitAfterLoss here. It panics if [Config.Check] returns
// an error.
//
// A server that is named twice is refused, and so is one that is a copy of another, since both
// would fail as one. So each is asked who it is, for the store's Timeout at most. One that is away
// is no error, and is not compared: a minority may be away. The error never repeats a password.
func OpenQuorum(ctx context.Context, urls []string, store redisstore.Config, config Config) (*QuorumLocks, error) {
	servers, err := quorum.Open(ctx, urls, store)
	if err != nil {
		return nil, err
	}
	return newQuorum(servers, config), nil
}

func newQuorum(servers *quorum.Quorum, config Config) *QuorumLocks {
	config.AfterLoss = cmp.Or(config.AfterLoss, WaitAfterLoss)
	l := &QuorumLocks{quorum: servers, config: config.withDefaults()}
	for _, store := range servers.Stores() {
		l.each = append(l.each, New(store, l.config))
	}
	return l
}

// Close waits for what goes on at the servers, and closes the connections to them. Release locks
// that are held first. Closing again does nothing.
func (l *QuorumLocks) Close() error {
	var faults []error
	for _, locks := range l.each {
		faults = append(faults, locks.Close())
	}
	return errors.Join(append(faults, l.quorum.Close())...)
}

// Acquire waits until a majority grants the lock, and holds it: it is renewed until Release, its
// loss, or the end of the context. So the context is that of the work under the lock as well as of
// the waiting; Request.Wait bounds the waiting alone. Request.Mode is Exclusive, and Token stays
// empty: each attempt has one of its own, since the release of a failed attempt can reach a server
// after another attempt has succeeded.
//
// The errors are those of [Locks.Acquire]. While it waits, a majority may be away for two minutes;
// for the first answer it does not wait.
func (l *QuorumLocks) Acquire(ctx context.Context, name string, request Request) (*Lock, error) {
	request, err := l.check(name, request)
	if err != nil {
		return nil, err
	}
	waiting, cancel := waitContext(ctx, request.Wait)
	defer cancel()
	var last error = &HeldError{Left: -1}
	asking := ctx // the first time, though the wait may be over: it asks once at least
	for first, answered := true, time.Now(); ; first, asking = false, waiting {
		a := l.attempt(name, request)
		lock, err := a.acquire(ctx, asking)
		impatient := first || time.Since(answered) > placeKept
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(err, redisstore.ErrWrongType), unknown(err) && (impatient || waiting.Err() != nil):
			return nil, err
		case a.answered:
			last, answered = err, time.Now()
		case first && ctx.Err() == nil, impatient && waiting.Err() == nil:
			return nil, err
		}
		if _, waits := sleep(waiting, nil, nil, l.untilAttempt(err)); !waits {
			return nil, refused(ctx, last)
		}
	}
}

// TryAcquire is Acquire with one attempt. If several ask at the same time it may return a
// *HeldError although the lock has no holder.
func (l *QuorumLocks) TryAcquire(ctx context.Context, name string, request Request) (*Lock, error) {
	request, err := l.check(name, request)
	if err != nil {
		return nil, err
	}
	return l.attempt(name, request).acquire(ctx, ctx)
}

// check returns a request with its defaults.
func (l *QuorumLocks) check(name string, request Request) (Request, error) {
	if request.Token != "" {
		return Request{}, errQuorumToken
	}
	request = request.withDefaults(l.config)
	if request.Mode == Shared || request.Mode == Permits {
		return Request{}, errQuorumMode
	}
	err := request.check(name, l.config.LongestTTL)
	request.TTL = whole(request.TTL)
	return request, err
}

// untilAttempt is how long to wait after a failed attempt: at random, so that requests that each
// got a minority do not collide again.
func (l *QuorumLocks) untilAttempt(err error) time.Duration {
	window := l.config.Window
	pause := window/20 + rand.N(window*3/20) //nolint:gosec // it keeps waiters apart and hides nothing
	if held, ok := errors.AsType[*HeldError](err); ok && held.Left >= 0 {
		return min(pause, held.Left+window/500+rand.N(window/50)) //nolint:gosec // the same
	}
	if errors.Is(err, ErrInDoubt) {
		return min(redisstore.RetryAfter(err)+pause, slowest*window)
	}
	return pause
}

// brief is how long a server may take to answer: little compared with the lease.
func brief(ttl time.Duration) time.Duration { return ttl / 10 }

// margin is how long before the end of the lease the holder's context ends. The clocks of two
// servers, and of this process, may each gain or lose a part of the TTL.
func (l *QuorumLocks) margin(ttl time.Duration) time.Duration {
	return cmp.Or(l.config.Margin, min(ttl/10, time.Second)) + ttl/100 + 2*time.Millisecond
}
