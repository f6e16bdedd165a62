package lock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
)

// Election chooses one leader among those who campaign under one name. It is a lock by that name:
// who holds it leads, and who waits for it stands for election. It is safe for concurrent use; each
// campaign is one of its own.
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
		// a leader is not followed within his process without observers seeing it
		request.Token = secret.New()
	}
	return e.locks.Acquire(ctx, e.name, request)
}

// Resign gives leadership up, to the candidate who has stood for longest. ErrLost: it did not lead
// any more.
func (e *Election) Resign(ctx context.Context, leadership *Lock) error {
	return leadership.Release(ctx)
}

// Leader is who leads, by the Redis server.
type Leader struct {
	Owner string
	Fence int64 // the term: it rises with each leader
	Since time.Time
}

// ErrNoLeader means that nobody leads now.
var ErrNoLeader = errors.New("lock: nobody leads")

// Leader asks who leads now. ErrNoLeader: nobody does. By the time it is told, another may.
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

// Leaders tells the leader there is, and each that follows, until the context ends or the loop is
// left. It looks twice in a claim window ([Config].Window), so a leader of a moment may go unseen.
// ErrNoLeader is told once for each time without a leader, and so is another error, after which it
// goes on.
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
