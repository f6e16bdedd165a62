package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
)

// QuorumLock is a lock of a quorum that this process holds and renews. Its context lasts for as
// long as the lock may be counted on. It is safe for concurrent use.
type QuorumLock struct {
	counted

	attempt *attempt

	release sync.Once
	outcome error // of the release
}

// hold holds a granted lock, unless the grant came too late or the context has ended.
func (a *attempt) hold(ctx context.Context) (*QuorumLock, error) {
	l := a.locks
	lock := &QuorumLock{attempt: a}
	lock.keeper = keepalive.Start(ctx, a.sent, a.sent.Round(0), keepalive.Config{
		TTL: a.ttl, Margin: l.margin(a.ttl), Renew: a.renew, Strict: true, Late: errLate,
		Lost: isLost,
		Failed: func(err error) {
			l.config.Logger.Warn("lock: a renewal was confirmed by no majority and is tried again", "name", a.name, "fence", a.fence, "error", err)
		},
	})
	if lock.Validity() > 0 {
		return lock, nil
	}
	return nil, errors.Join(lock.Err(), lock.Release(ctx))
}

// Name is the lock's name.
func (k *QuorumLock) Name() string { return k.attempt.name }

// Token is the secret that proves the grant on each of the servers.
func (k *QuorumLock) Token() string { return k.attempt.token }

// Fence is a number that is larger for every later grant of this lock, by any majority. Send it to
// the resource with every write: see [CheckFence]. A single server may record a larger one for the
// lock.
func (k *QuorumLock) Fence() int64 { return k.attempt.fence }

// Since is when the lock was granted, by the clock of the server that minted the fence.
func (k *QuorumLock) Since() time.Time { return k.attempt.since }

// Release gives the lock back at all servers. It returns when a majority does not have it any more;
// the rest goes on in the background, and [QuorumLocks.Close] waits for it. It does so even
// if the context has ended, within two seconds. ErrLost: the lock had another holder, or none, by
// then. After another error the lock ends with its TTL. Releasing again does nothing and returns
// the same.
func (k *QuorumLock) Release(ctx context.Context) error {
	k.release.Do(func() {
		k.keeper.Stop()
		k.outcome = k.attempt.leave(ctx)
	})
	return k.outcome
}
