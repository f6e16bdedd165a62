package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/secret"
)

// LockRequest describes a lock to acquire. The zero value is an exclusive lock with the defaults.
type LockRequest struct {
	// how long the lock is held without a renewal, 100 ms to a day or the service's bound; 0 = 30 s
	TTL time.Duration
	// how long to wait at most; 0 = as long as the context allows. Below 0 it is ErrInvalid.
	// TryAcquireLock does not wait
	Wait time.Duration
	// exclusive, shared or permits; "" = exclusive, or permits if there are more than one
	Mode string
	// Permits is how many permits there are: as many may hold at once. All requests for a lock that
	// are open at one time must state the same. 0 = 1.
	Permits int
	Take    int // how many of them to take; 0 = 1
	// names the holder for people, up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -; "" = the
	// address that the service sees
	Owner string
}

// Causes with which the context of a [Lock] or a [Holder] ends, beside ErrLost and the causes of
// the context that it was acquired with.
var (
	// ErrDeadline means that no renewal was confirmed in time: it may still be there, but its
	// holder must not count on it. That of a Lock comes with ErrLost.
	ErrDeadline = keepalive.ErrDeadline
	// ErrReleased means that it was given back.
	ErrReleased = keepalive.ErrReleased
)

var errLockLate = fmt.Errorf("%w: %w", ErrLost, ErrDeadline)

const releaseTimeout = 2 * time.Second

// Lock is a lock that this process holds and renews. Its context lasts for as long as the lock may
// be counted on. It is safe for concurrent use.
type Lock struct {
	client *Client
	first  lockGrant
	keeper *keepalive.Keeper

	release sync.Once
	outcome error // of the release
}

// AcquireLock waits until the lock is granted and holds it: it is renewed until Release, its loss,
// or the end of the context. So the context is that of the work under the lock as well as of the
// waiting; LockRequest.Wait bounds the waiting alone.
//
// One wait takes several requests if it is long. It keeps its place in the queue from one to the
// next, and for two minutes while the service does not answer. If it ends without the lock, its
// place is given back, within two seconds.
//
// The errors: ErrHeld after LockRequest.Wait (RetryAfter is when the holder's lease can end),
// ErrPermits if the lock has another number of permits now, ErrQuarantined while the service does
// not know which leases are open, ErrInvalid; ErrUnavailable (nothing was done);
// ErrUnknownOutcome (the lock may be taken, without a holder, until the service has given it back
// or its TTL has passed).
func (c *Client) AcquireLock(ctx context.Context, name string, request LockRequest) (*Lock, error) {
	w := &waiter{client: c, name: name, request: request, place: secret.New()}
	if request.Wait < 0 {
		return nil, call{op: "acquire lock"}.invalid("a wait is not negative")
	}
	if request.Wait > 0 {
		w.over = time.Now().Add(request.Wait)
	}
	for {
		lock, err := w.ask(ctx)
		if err == nil {
			return lock, nil
		}
		if !w.goesOn(ctx, err) {
			return nil, err
		}
		breathe(ctx, w.over)
	}
}

// TryAcquireLock is AcquireLock without waiting: ErrHeld if the lock is held or has waiters.
func (c *Client) TryAcquireLock(ctx context.Context, name string, request LockRequest) (*Lock, error) {
	sent := time.Now()
	grant, err := c.grantLock(ctx, name, request, 0, "")
	if err != nil {
		return nil, err
	}
	return c.keepLock(ctx, grant, sent)
}

// keepLock holds a lock that was granted to a request sent at that time.
func (c *Client) keepLock(ctx context.Context, grant lockGrant, sent time.Time) (*Lock, error) {
	// its lease began at an unknown moment since then: it is counted anew
	if keepalive.Age(sent) > grant.ttl/4 {
		sent = time.Now()
		if err := c.renewLock(ctx, grant); err != nil {
			return nil, notKept(err, c.discardLock(ctx, grant))
		}
	}
	lock := &Lock{client: c, first: grant}
	lock.keeper = keepalive.Start(ctx, sent, sent.Round(0), keepalive.Config{
		TTL: grant.ttl, Renew: lock.renew, Strict: true, Late: errLockLate,
		Lost: func(err error) bool { return errors.Is(err, ErrLost) },
		Failed: func(err error) {
			c.log.Warn("client: a renewal of a lock failed and is tried again", "name", grant.name, "fence", grant.fence, "error", err)
		},
	})
	if lock.Validity() > 0 {
		return lock, nil
	}
	err := lock.Err() // the answer came too late, or the context has ended
	return nil, notKept(err, lock.Release(ctx))
}

// notKept is the error of a lock that was granted and cannot be kept, for a reason, and was given
// back. If neither says that it is free, it may be taken, without a holder.
func notKept(reason, release error) error {
	if release == nil || errors.Is(release, ErrLost) || errors.Is(reason, ErrLost) && !errors.Is(reason, ErrDeadline) {
		return reason
	}
	if errors.Is(reason, ErrLost) || errors.Is(reason, ErrRefused) {
		reason = errors.New(reason.Error()) // of one class
	}
	return fmt.Errorf("%w: %w; giving the lock back: %s", ErrUnknownOutcome, reason, release.Error())
}

func (k *Lock) renew(ctx context.Context) error { return k.client.renewLock(ctx, k.first) }

// Name is the lock's name.
func (k *Lock) Name() string { return k.first.name }

// Fence is a number that is larger for every later grant of this lock, and below 2^53. Send it to
// the resource with every write, so that the resource can refuse a holder that was overtaken.
func (k *Lock) Fence() int64 { return k.first.fence }

// Since is when the lock was granted, by the Redis server's clock.
func (k *Lock) Since() time.Time { return k.first.since }

// TTL is how long the lock is held without a renewal.
func (k *Lock) TTL() time.Duration { return k.first.ttl }

// Context ends when the lock cannot be counted on any more. Its cause is what Err says.
func (k *Lock) Context() context.Context { return k.keeper.Context() }

// Done is closed when the lock cannot be counted on any more.
func (k *Lock) Done() <-chan struct{} { return k.keeper.Context().Done() }

// Err is nil while the lock may be counted on, and ErrReleased after Release. Otherwise it is
// the reason, which wraps ErrLost unless the context of AcquireLock has ended.
func (k *Lock) Err() error {
	cause := context.Cause(k.keeper.Context())
	if cause == nil && k.keeper.Valid() <= 0 {
		return errLockLate // its timer is about to end the context
	}
	return cause
}

// Validity is how long from now the lock may be counted on if no renewal is confirmed, by monotonic
// and wall time; 0 or less: not any more. A process that was paused learns of its loss late: check
// before each step that matters, and let the resource check the fence.
func (k *Lock) Validity() time.Duration { return k.keeper.Valid() }

// Release gives the lock back, to the next waiter if there is one. It does so even if the context
// has ended, within two seconds. ErrLost: the lock had another holder, or none, by then. After
// another error the lock ends with its TTL. Releasing again does nothing and returns the same.
func (k *Lock) Release(ctx context.Context) error {
	k.release.Do(func() {
		k.keeper.Stop()
		k.outcome = k.client.discardLock(ctx, k.first)
	})
	return k.outcome
}

// ReleaseAfter gives the lock back in a while: no other holder has it before, and it is not renewed
// any more. So work that is over in a moment keeps others out for longer, whose clocks are behind.
// The time counts from the call, by Redis's clock, within the bounds of LockRequest.TTL: a shorter
// one is 100 ms, a longer one ErrInvalid. Other errors are as those of Release. It and
// Release exclude each other: the second call does nothing and returns what the first did.
func (k *Lock) ReleaseAfter(ctx context.Context, span time.Duration) error {
	k.release.Do(func() {
		k.keeper.Stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		grant := k.first
		grant.ttl = max(span, 100*time.Millisecond)
		k.outcome = k.client.renewLock(ctx, grant)
	})
	return k.outcome
}
