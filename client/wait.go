package client

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
)

const (
	// oneWait is how long one request waits in the queue at most. A longer wait takes several, and
	// so does one that is longer than the service lets a request take.
	oneWait = time.Minute
	// patience bounds a wait without an end and without a place in the queue while the service is
	// silent.
	patience = 15 * time.Second
	// placeKept is how long one with a place does: for as long as the place is kept.
	placeKept = 2 * time.Minute
)

// waiter is a caller that waits for a lock. Its requests have one token, so that it keeps its place
// in the queue, and a lock whose answer was lost.
type waiter struct {
	client  *Client
	name    string
	request LockRequest
	over    time.Time // the end of the wait; zero = none
	place   string    // the token, a secret: the lease's, once the lock is granted
	placed  bool      // it may have a place in the queue, or the lock
	silence time.Time // since when requests have failed without an answer; zero = the last did not
}

// ask sends one request and holds a granted lock.
func (w *waiter) ask(ctx context.Context) (*Lock, error) {
	wait := oneWait
	if !w.over.IsZero() {
		wait = min(wait, max(time.Until(w.over), 0))
	}
	sent := time.Now()
	grant, err := w.client.grantLock(ctx, w.name, w.request, wait, w.place)
	if err != nil {
		return nil, err
	}
	// a release of this lease may arrive late, and must not end a later one
	w.place, w.placed, w.silence = secret.New(), false, time.Time{}
	return w.client.keepLock(ctx, grant, sent)
}

// goesOn reports whether to ask again after an error. If not, it gives up the place in the queue.
func (w *waiter) goesOn(ctx context.Context, err error) bool {
	unknown := errors.Is(err, ErrUnknownOutcome)
	w.placed = w.placed || unknown || errors.Is(err, ErrHeld) || ctx.Err() != nil
	silent := unknown || errors.Is(err, ErrUnavailable)
	switch {
	case !silent:
		w.silence = time.Time{}
	case w.silence.IsZero():
		w.silence = time.Now()
	}
	kept := patience
	if !w.over.IsZero() {
		kept = math.MaxInt64
	} else if w.placed {
		kept = placeKept
	}
	again := errors.Is(err, ErrHeld) || errors.Is(err, ErrQuarantined) || silent && time.Since(w.silence) < kept
	if again && ctx.Err() == nil && (w.over.IsZero() || time.Until(w.over) > 0) {
		return true
	}
	if w.placed {
		// after a failure the place ends by itself, and other waiters pass it meanwhile
		_ = w.client.discardLock(ctx, lockGrant{name: w.name, token: w.place})
	}
	return false
}

// breathe pauses between two requests, so that a service that answers at once is not flooded.
func breathe(ctx context.Context, over time.Time) {
	pause := 100*time.Millisecond + rand.N(100*time.Millisecond) //nolint:gosec // it spreads a load, and guessing it gains nothing
	if !over.IsZero() {
		pause = min(pause, time.Until(over))
	}
	rest(ctx, pause)
}
