package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/redisstore"
)

// ErrTooOften is the error of a caller over its limit. It comes as a [*TooOftenError].
var ErrTooOften = errors.New("access: asked too often")

// TooOftenError says when to ask again.
type TooOftenError struct{ Wait time.Duration }

// Error has no figures: the answer has them in its headers.
func (t *TooOftenError) Error() string { return ErrTooOften.Error() }

// RetryAfter returns Wait.
func (t *TooOftenError) RetryAfter() time.Duration { return t.Wait }

// Unwrap makes it an ErrTooOften.
func (t *TooOftenError) Unwrap() error { return ErrTooOften }

// State is a principal's use of its limit.
type State struct {
	Size  int           // requests that may come at once after a rest
	Left  int           // of them
	Whole time.Duration // how long it takes until all of Size may come again, after all were used
	Full  time.Duration // how long it takes until all of Size may come again now
}

// Limiter counts requests by principal for all servers on a store together, as package limit does.
// It is safe for concurrent use.
//
// A request costs one round trip, which those of its principal share that come while one is under
// way. One that is over the limit by what this server has seen costs none: others can only have
// used more.
//
// While the store does not answer each server counts by itself, so that all of them together let
// through as many times the limit as there are servers. They ask the store again every second.
type Limiter struct {
	limits *limit.Limits
	log    *slog.Logger

	mu sync.Mutex
	// by principal: when all of its limit is free again, as far as is known
	full map[string]time.Time
	away time.Time // until when the store is not asked, since it did not answer
}

const (
	maxPrincipals = 10_000 // that are remembered
	awayFor       = time.Second
)

// NewLimiter returns a limiter that counts in a store. It ends with Close.
func NewLimiter(store *redisstore.Store, log *slog.Logger) *Limiter {
	return &Limiter{limits: limit.New(store, limit.Config{Group: "callers"}), log: log, full: map[string]time.Time{}}
}

// Close waits for what is under way. Nothing may be counted any more.
func (l *Limiter) Close() { _ = l.limits.Close() } // it waits, and has no error

// Take counts one request. The error is a [*TooOftenError], or that of a context that ended.
func (l *Limiter) Take(ctx context.Context, principal string, by Limit) (State, error) {
	rate := by.rate()
	if state, decided, err := l.here(principal, rate); decided {
		return state, err
	}
	got, err := l.limits.Take(ctx, names.Digest(principal), rate, 1)
	reached, over := errors.AsType[*limit.ReachedError](err)
	switch {
	case over:
		l.learn(principal, reached.Reset)
		return stateOf(rate, reached.State), &TooOftenError{max(reached.Wait, time.Millisecond)}
	case err == nil:
		l.learn(principal, got.Reset)
		return stateOf(rate, got), nil
	case ctx.Err() != nil:
		return State{}, ctx.Err()
	}
	l.lose(err)
	state, _, err := l.here(principal, rate)
	return state, err
}

// here decides about a request without the store: one that is over the limit, and while the store
// is away every one.
func (l *Limiter) here(principal string, rate limit.Rate) (state State, decided bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, each := time.Now(), rate.Whole()/time.Duration(rate.Size())
	used := max(l.full[principal].Sub(now), 0)
	wait := used + each - rate.Whole()
	switch {
	case wait > 0:
		err = &TooOftenError{max(wait, time.Millisecond)}
	case now.Before(l.away):
		used += each
		l.noteLocked(principal, now.Add(used))
	default:
		return State{}, false, nil
	}
	return stateOf(rate, limit.State{Remaining: int((rate.Whole() - used) / each), Reset: used}), true, err
}

// learn notes what the store has said of a principal.
func (l *Limiter) learn(principal string, reset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(principal, time.Now().Add(reset))
}

func (l *Limiter) noteLocked(principal string, full time.Time) {
	if len(l.full) >= maxPrincipals {
		clear(l.full)
	}
	l.full[principal] = full
}

// lose has this server count by itself for a while.
func (l *Limiter) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.away) > awayFor {
		l.log.Warn("the store does not count requests; this server counts by itself", "error", err)
	}
	l.away = now.Add(awayFor)
}

func stateOf(rate limit.Rate, now limit.State) State {
	return State{Size: rate.Size(), Left: max(now.Remaining, 0), Whole: rate.Whole(), Full: now.Reset}
}
