package lock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
)

// Election chooses one leader among the candidates under one name. It is a lock by that name: the
// holder leads, and the waiters are the candidates. It is safe for concurrent use; campaigns are
// independent of one another.
type Election struct {
	locks *Locks
	name  string
}

// Election returns the election of that name.
func (l *Locks) Election(name string) *Election { return &Election{l, name} }

// Campaign waits until this candidate leads. It leads until the lock's context ends, or it resigns
// with Release. Request.Owner names the candidate to observers; the mode is Exclusive. The errors
// are those of Acquire.
func (e *Election) Campaign(ctx context.Context, request Request) (*Lock, error) {
	request.Mode, request.Capacity, request.Permits, request.WholeTTL = Exclusive, 0, 0, true
	if request.Token == "" {
		// observers must see each leader, also when the next one is in the same process
		request.Token = secret.New()
	}
	return e.locks.Acquire(ctx, e.name, request)
}

// Resign gives leadership up, to the candidate that has waited for longest. ErrLost: it did not
// lead any more.
func (e *Election) Resign(ctx context.Context, leadership *Lock) error {
	return leadership.Release(ctx)
}

// Leader is the current leader, by the Redis server.
type Leader struct {
	Owner string
	Fence int64 // the term: it rises with each leader
	Since time.Time
}

// ErrNoLeader means that there is no leader now.
var ErrNoLeader = errors.New("lock: there is no leader")

// Leader returns the current leader, or ErrNoLeader. It may have changed by the time the call
// returns.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	found, err := e.locks.Get(ctx, e.name)
	switch {
	case err != nil:
		return Leader{}, err
	case len(found.Holders) == 0:
		return Leader{}, ErrNoLeader
	}
	holder := found.Holders[0]
	return Leader{Owner: holder.Owner, Fence: holder.Fence, Since: holder.Since}, nil
}

// Leaders yields the current leader and each that follows, until the context ends or the loop is
// left. It polls twice in a claim window ([Config].Window), so it may miss a short leadership. It
// yields ErrNoLeader once for each time without a leader, and any other error once, and goes on.
func (e *Election) Leaders(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		var fault error
		for first := true; ctx.Err() == nil; first = false {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			changed := first || leader != last || (err == nil) != (fault == nil) || errors.Is(err, ErrNoLeader) != errors.Is(fault, ErrNoLeader)
			if changed && !yield(leader, err) {
				return
			}
			last, fault = leader, err
			sleep(ctx, nil, nil, e.locks.config.Window/2)
		}
	}
}
