package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
)

// Lock is a lock that this process holds and renews. Its context lasts for as long as the lock may
// be counted on. It is safe for concurrent use.
type Lock struct {
	keeper *keepalive.Keeper
	first  Grant // its grant at the beginning

	locks   *Locks
	listing listing

	release sync.Once
	outcome error // of the release
}

// Acquire waits until the lock is granted and holds it: it is renewed until Release, its loss, or
// the end of the context. Waiters are served in the order in which they ask Redis. So the context
// is that of the work under the lock as well as of the waiting; Request.Wait bounds the waiting
// alone. A request that is under way when the waiting ends is waited for, for one timeout of the
// store at most: else it could be granted after its withdrawal.
//
// The errors: a *HeldError after Request.Wait or with the context's cause, ErrPermits, ErrInDoubt
// if the wait ends before the doubt does, ErrInvalid; redisstore.ErrUnavailable (nothing was done),
// redisstore.ErrUnknownOutcome (the lock may be taken, without a holder, until Redis answers again:
// then it is given back, unless that takes two minutes, Close comes first, or Request.Token is set;
// else it lasts for its TTL), ErrLost with ErrDeadline (the grant came too late to be counted on).
func (l *Locks) Acquire(ctx context.Context, name string, request Request) (*Lock, error) {
	return l.hold(ctx, name, request)
}

// TryAcquire is Acquire without waiting: a *HeldError if the lock is held or has waiters.
func (l *Locks) TryAcquire(ctx context.Context, name string, request Request) (*Lock, error) {
	request.once = true
	return l.hold(ctx, name, request)
}

func (l *Locks) hold(ctx context.Context, name string, request Request) (*Lock, error) {
	a, err := l.ask(name, request)
	if err != nil {
		return nil, err
	}
	a.enters = !a.WholeTTL
	ended := l.waits(a)
	grant, err := l.obtain(ctx, a)
	ended(err == nil)
	if err != nil {
		return nil, err
	}
	return l.begin(ctx, grant).unlessLate(ctx)
}

// unlessLate returns the lock, unless the grant came too late or the context has ended.
func (k *Lock) unlessLate(ctx context.Context) (*Lock, error) {
	if k.Validity() > 0 {
		return k, nil
	}
	return nil, errors.Join(k.Err(), k.Release(ctx))
}

// begin makes a Lock of a grant.
func (l *Locks) begin(ctx context.Context, grant Grant) *Lock {
	k := &Lock{locks: l, first: grant}
	k.keeper = keepalive.Start(ctx, grant.sent, grant.sent.Round(0), keepalive.Config{
		TTL: grant.TTL, First: grant.goodFor(), Margin: l.config.Margin, Strict: true,
		Renew: k.renew, Late: errLate, Lost: isLost, Failed: k.failed,
	})
	k.listing.start(l, grant)
	return k
}

func isLost(err error) bool { return errors.Is(err, ErrLost) }

func (k *Lock) failed(err error) {
	k.locks.log.Warn("lock: a renewal failed and is tried again", "name", k.first.Name, "fence", k.first.Fence, "error", err)
}

func (k *Lock) renew(ctx context.Context) error {
	_, err := k.locks.extend(ctx, k.first)
	if err == nil {
		k.listing.extend()
	}
	return err
}

// Name is the lock's name.
func (k *Lock) Name() string { return k.first.Name }

// Token is the secret that proves the grant, until the release.
func (k *Lock) Token() string { return k.first.Token }

// Fence is a number that is larger than that of every earlier grant of this lock. Send it to the
// resource with every write, so that the resource can refuse a holder that was overtaken: see
// [CheckFence].
func (k *Lock) Fence() int64 { return k.first.Fence }

// Since is when the lock was granted, by the Redis server's clock.
func (k *Lock) Since() time.Time { return k.first.Since }

// Release gives the lock back, to the next waiter if there is one. It does so even if the context
// has ended, within two seconds. ErrLost: the lock had another holder, or none, by then. After
// another error the lock ends with its TTL. Releasing again does nothing and returns the same.
func (k *Lock) Release(ctx context.Context) error {
	k.release.Do(func() {
		k.keeper.Stop()
		ctx, cancel := k.locks.releaseContext(ctx)
		defer cancel()
		listed := k.listing.stop()
		free, err := k.locks.giveLease(ctx, k.first.keys, k.first.Token)
		if listed && free {
			k.locks.unlist(ctx, k.first.Name)
		}
		k.outcome = err
	})
	return k.outcome
}

// ReleaseAfter gives the lock back in a while: no other holder has it before, and it is not renewed
// any more. So work that is over in a moment keeps others out for longer, whose clocks are behind.
// The time counts from the call, in whole milliseconds, rounded up, MinTTL at least and up to
// Config.LongestTTL, by Redis's clock; errors are as those of Release, beside ErrInvalid. It and
// Release exclude each other: the second call does nothing and returns what the first did.
func (k *Lock) ReleaseAfter(ctx context.Context, span time.Duration) error {
	k.release.Do(func() {
		k.keeper.Stop()
		ctx, cancel := k.locks.releaseContext(ctx)
		defer cancel()
		k.listing.stop()
		grant := k.first
		grant.TTL = max(whole(span+time.Millisecond-1), MinTTL)
		_, k.outcome = k.locks.Renew(ctx, grant)
	})
	return k.outcome
}

// Context ends when the lock cannot be counted on any more. Its cause is what Err says.
func (k *Lock) Context() context.Context { return k.keeper.Context() }

// Done is closed when the lock cannot be counted on any more.
func (k *Lock) Done() <-chan struct{} { return k.keeper.Context().Done() }

// Err is nil while the lock may be counted on, and ErrReleased after Release. Otherwise it is the
// reason, which wraps ErrLost unless the context of Acquire has ended.
func (k *Lock) Err() error {
	cause := context.Cause(k.keeper.Context())
	if cause == nil && k.keeper.Valid() <= 0 {
		return errLate // its timer is about to end the context
	}
	return cause
}

// Validity is how long from now the lock may be counted on if no renewal is confirmed, by monotonic
// and wall time; 0 or less: not any more. Just after another process has handed the lock over it is
// less than a claim window, and soon most of the TTL: see [Request].WholeTTL. A process that was
// paused learns of its loss late: check before each step that matters, and let the resource check
// the fence.
func (k *Lock) Validity() time.Duration { return k.keeper.Valid() }
