package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/quorum"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
)

// attempt is one request to all servers of a quorum, with a token of its own, and its outcome: a
// held lock is an attempt that was granted.
type attempt struct {
	locks   *QuorumLocks
	name    string
	ttl     time.Duration
	token   string
	members []*member // to each server
	sent    time.Time // before the first request

	answered bool      // by a majority, also if it refused
	fence    int64     // the largest that a server of the majority minted
	since    time.Time // by that server

	over atomic.Bool // it is being given back
}

func (l *QuorumLocks) attempt(name string, request Request) *attempt {
	request.Token = secret.New()
	a := &attempt{locks: l, name: name, ttl: request.TTL, token: request.Token}
	for _, locks := range l.each {
		a.members = append(a.members, newMember(locks, name, request, &a.over))
	}
	return a
}

// acquire asks for the lock until the second context ends, and holds it until the first one does.
func (a *attempt) acquire(ctx, waiting context.Context) (*Lock, error) {
	if err := a.run(waiting); err != nil {
		return nil, err
	}
	l := a.locks
	lock := &Lock{leave: a.leave, first: Grant{Name: a.name, Token: a.token, Fence: a.fence, Since: a.since}}
	lock.keeper = keepalive.Start(ctx, a.sent, a.sent.Round(0), keepalive.Config{
		TTL: a.ttl, Margin: l.margin(a.ttl), Renew: a.renew, Strict: true, Late: errLate, Lost: isLost,
		Failed: func(err error) {
			l.config.Logger.Warn("lock: a renewal was confirmed by no majority and is tried again", "name", a.name, "fence", a.fence, "error", err)
		},
	})
	return lock.unlessLate(ctx)
}

// run asks for the lock. After an error, what was granted has been given back as far as that is
// possible, and the error says how far.
func (a *attempt) run(ctx context.Context) error {
	a.sent = time.Now()
	err := a.enter(ctx)
	if err == nil {
		err = a.raise(ctx)
	}
	if err == nil {
		return nil
	}
	if left := a.clear(ctx); left != nil {
		left.Class, left.Cause = redisstore.ErrUnknownOutcome, fmt.Errorf("%s; giving back what there may be: %w", err.Error(), left.Cause)
		return left
	}
	if failed, ok := errors.AsType[*redisstore.Error](err); ok && !errors.Is(err, redisstore.ErrWrongType) {
		failed.Class = redisstore.ErrUnavailable // whatever was done has been taken back
	}
	return err
}

// vote is the answer of one server.
type vote struct {
	grant   Grant
	refusal error
}

// enter asks all servers for the lock, and notes the fence if a majority grants it.
func (a *attempt) enter(ctx context.Context) error {
	answers := quorum.Ask(ctx, a.locks.quorum, brief(a.ttl), func(ctx context.Context, i int) (vote, bool, error) {
		grant, err := a.members[i].enter(ctx)
		if errors.Is(err, ErrHeld) || errors.Is(err, ErrInDoubt) || errors.Is(err, redisstore.ErrWrongType) {
			return vote{refusal: err}, false, nil
		}
		return vote{grant: grant}, true, err
	})
	votes := answers.Votes()
	a.answered = votes.Answered()
	if !votes.Carried() {
		if !a.answered {
			return answers.Silence(ctx, "lock_enter")
		}
		return refusalOf(answers.Said, votes)
	}
	for _, response := range answers.Said {
		if minted := response.Value.grant; response.Yes && minted.Fence > a.fence {
			a.fence, a.since = minted.Fence, minted.Since
		}
	}
	return nil
}

// refusalOf is the error for the answers of servers, of which a majority has answered and not
// granted. A quorum's lock becomes free when it does on as many servers as are missing.
func refusalOf(response []quorum.Said[vote], votes quorum.Votes) error {
	var held *HeldError
	var wrong error
	var spans []time.Duration
	for _, one := range response {
		refusal := one.Value.refusal
		if each, ok := errors.AsType[*HeldError](refusal); ok {
			if held == nil || held.Since.IsZero() || !each.Since.IsZero() && each.Since.Before(held.Since) {
				held = &HeldError{Since: each.Since}
			}
			if each.Left >= 0 {
				spans = append(spans, each.Left)
			}
		} else if errors.Is(refusal, ErrInDoubt) {
			spans = append(spans, redisstore.RetryAfter(refusal))
		} else if refusal != nil {
			wrong = refusal
		}
	}
	slices.Sort(spans)
	left := time.Duration(-1)
	if missing := votes.Of/2 + 1 - votes.Yes; missing <= len(spans) {
		left = spans[missing-1]
	}
	switch {
	case held != nil:
		held.Left = left
		return held
	case wrong != nil:
		return wrong
	}
	return inDoubt(left)
}

// ask sends all servers the same.
func (a *attempt) ask(ctx context.Context, patience time.Duration, call func(context.Context, *member) (yes bool, err error)) quorum.Answers[struct{}] {
	return quorum.Ask(ctx, a.locks.quorum, patience, func(ctx context.Context, i int) (struct{}, bool, error) {
		yes, err := call(ctx, a.members[i])
		return struct{}{}, yes, err
	})
}

// raise renews the lock at all servers, each of which raises its fence if that is smaller. ErrLost:
// a majority does not have the lock any more.
func (a *attempt) raise(ctx context.Context) error {
	answers := a.ask(ctx, brief(a.ttl), func(ctx context.Context, l *member) (bool, error) { return l.raise(ctx, a.fence) })
	switch votes := answers.Votes(); {
	case votes.Carried():
		return nil
	case votes.Rejected():
		return ErrLost
	}
	return answers.Silence(ctx, "lock_raise")
}

// renew is a renewal for the keeper.
func (a *attempt) renew(ctx context.Context) error {
	err := a.raise(ctx)
	if err == nil {
		a.tend(ctx)
	}
	return err
}

// tend acquires the lock at the servers that do not have it, such as one that was restarted empty,
// and lists it at the others. It does not wait, and it counts only when the next renewal finds it:
// a renewal needs a majority that has had the lock all the time. So a lock survives the replacement
// of one server after the other, and one that was broken, or has ended, does not come back.
func (a *attempt) tend(ctx context.Context) {
	a.locks.quorum.Each(ctx, brief(a.ttl), func(ctx context.Context, i int) { a.members[i].tend(ctx) })
}

// clear gives back what the attempt may have got anywhere, and keeps requests that were not sent
// yet from being sent. The error is the reason why a majority may still have something of it.
func (a *attempt) clear(ctx context.Context) *redisstore.Error {
	a.over.Store(true)
	answers := a.ask(context.WithoutCancel(ctx), releaseTimeout, func(ctx context.Context, l *member) (bool, error) {
		_, err := l.leave(ctx)
		return true, err
	})
	if answers.Votes().Carried() {
		return nil
	}
	return answers.Silence(ctx, "lock_leave")
}

// leave gives back a lock that was held.
func (a *attempt) leave(ctx context.Context) error {
	a.over.Store(true)
	answers := a.ask(context.WithoutCancel(ctx), releaseTimeout, func(ctx context.Context, l *member) (bool, error) { return l.leave(ctx) })
	switch votes := answers.Votes(); {
	// a majority does not have it any more, and one of them had it until now
	case votes.Carried(), votes.Answered() && !votes.Rejected():
		return nil
	case votes.Rejected():
		return ErrLost
	}
	return answers.Silence(ctx, "lock_leave")
}
