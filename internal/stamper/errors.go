package stamper

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable says that no id can be stamped now: this process has no lease that it can count
// on. No id was used. The error is an *Unavailable.
var ErrUnavailable = errors.New("stamper: no worker id is held")

// Unavailable is [ErrUnavailable] with the reason.
type Unavailable struct {
	Reason string // for the client: nothing of the store's address is in it
	Cause  error  // for the log; nil = the reason says it all
}

// Error says the reason and the cause.
func (u *Unavailable) Error() string {
	if u.Cause == nil {
		return fmt.Sprintf("%v: %s", ErrUnavailable, u.Reason)
	}
	return fmt.Sprintf("%v: %s: %v", ErrUnavailable, u.Reason, u.Cause)
}

// Unwrap gives ErrUnavailable, and not the cause: a lease whose grant has an unknown outcome is no
// id whose stamping has.
func (u *Unavailable) Unwrap() error { return ErrUnavailable }

// ErrTooMany says that ids of as many pools as allowed are stamped here. Nothing was leased. The
// error is a *TooMany.
var ErrTooMany = errors.New("stamper: too many pools at once")

// TooMany is [ErrTooMany] with the time until the pool that has rested longest is given back, if
// it is not in use.
type TooMany struct {
	Max  int // pools
	Wait time.Duration
}

// Error says how many pools there may be.
func (t *TooMany) Error() string {
	return fmt.Sprintf("%v: this server stamps ids of %d pools at most; one that nobody uses is given back in %v at the earliest", ErrTooMany, t.Max, t.Wait)
}

// RetryAfter returns Wait.
func (t *TooMany) RetryAfter() time.Duration { return t.Wait }

// Unwrap gives ErrTooMany.
func (t *TooMany) Unwrap() error { return ErrTooMany }
