package stamper

import (
	"errors"
	"fmt"
)

// ErrUnavailable means that no id can be stamped now: this process has no lease that it can count
// on. No id was used. The error is an *UnavailableError.
var ErrUnavailable = errors.New("stamper: no worker id is held")

// UnavailableError is [ErrUnavailable] with the reason.
type UnavailableError struct {
	Reason string // for the client: nothing of the store's address is in it
	Cause  error  // for the log; nil = the reason says it all
}

// Error reports the reason and the cause.
func (u *UnavailableError) Error() string {
	if u.Cause == nil {
		return fmt.Sprintf("%v: %s", ErrUnavailable, u.Reason)
	}
	return fmt.Sprintf("%v: %s: %v", ErrUnavailable, u.Reason, u.Cause)
}

// Unwrap returns ErrUnavailable, not the cause: a grant's unknown outcome is not the stamping's.
func (u *UnavailableError) Unwrap() error { return ErrUnavailable }

// ErrTooMany means that this process stamps ids of as many pools as it may, and leased nothing.
// redisstore.RetryAfter returns when the longest unused pool is given back.
var ErrTooMany = errors.New("stamper: too many pools at once")
