package lock

import (
	"context"
	"errors"
	"iter"

	"github.com/coatcheck/coatcheck/internal/secret"
)

// Campaign waits until this candidate leads. An election is a lock by its name: the holder leads,
// and the waiters are the candidates. It leads until the lock's context ends, or it resigns with
// Release, and the candidate that has waited for longest follows. Request.Owner names the candidate
// to observers, to whom [Locks.Get] shows the leader as the holder; its fence is the term, which
// rises with each leader. The mode is Exclusive. The errors are those of Acquire.
func (l *Locks) Campaign(ctx context.Context, name string, request Request) (*Lock, error) {
	request.Mode, request.Permits, request.Take, request.WholeTTL = ModeExclusive, 0, 0, true
	request.candidate = true
	if request.Token == "" {
		// observers see each candidate as a waiter, also those of one process
		request.Token = secret.New()
	}
	return l.Acquire(ctx, name, request)
}

// leader returns the current leader, or ErrNoHolder.
func (l *Locks) leader(ctx context.Context, name string) (Holder, error) {
	found, err := l.Get(ctx, name)
	switch {
	case err != nil:
		return Holder{}, err
	case len(found.Holders) == 0:
		return Holder{}, ErrNoHolder
	}
	return found.Holders[0], nil
}

// Leaders yields the current leader and each that follows, until the context ends or the loop is
// left. It polls twice in a claim window ([Config].Window), so it may miss a short leadership. It
// yields ErrNoHolder once for each time without a leader, and any other error once, and goes on.
func (l *Locks) Leaders(ctx context.Context, name string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		var last Holder
		var fault error
		for first := true; ctx.Err() == nil; first = false {
			leader, err := l.leader(ctx, name)
			if ctx.Err() != nil {
				return
			}
			changed := first || leader.Fence != last.Fence || leader.Owner != last.Owner || (err == nil) != (fault == nil) ||
				errors.Is(err, ErrNoHolder) != errors.Is(fault, ErrNoHolder)
			if changed && !yield(leader, err) {
				return
			}
			last, fault = leader, err
			sleep(ctx, nil, l.config.Window/2)
		}
	}
}
