package snowflake

import (
	"errors"
	"fmt"
	"time"
)

// Why nothing is stamped. A context that ends while a call waits returns its own error.
var (
	// ErrWindowEnded means that the lease's window has ended and was not renewed. A later call
	// succeeds once it is, or once there is another grant.
	ErrWindowEnded = errors.New("snowflake: the lease's window has ended")
	// ErrNoLease means that there is no lease now. It comes together with the Worker's own error.
	ErrNoLease = errors.New("snowflake: no lease")
	// ErrStopped means that the generator was stopped. That is for good.
	ErrStopped = errors.New("snowflake: the generator was stopped")
	// ErrLayoutUsedUp means that the timestamp's bits are used up for good, at Layout.Lasts.
	ErrLayoutUsedUp = errors.New("snowflake: the layout's timestamp is used up")
	// ErrBeforeEpoch means that the epoch is in the future.
	ErrBeforeEpoch = errors.New("snowflake: the epoch is in the future")
	// ErrMisfit means that a lease's worker id or datacenter does not fit the bits of its layout,
	// or that it has no valid layout.
	ErrMisfit = errors.New("snowflake: the lease does not fit the layout")
	// ErrReshaped means that the lease has another layout or epoch than the generator's ids. It
	// takes another generator to stamp with such a lease.
	ErrReshaped = errors.New("snowflake: the lease has another layout or epoch than before")
)

// Why a text is no id, or an id cannot be written.
var (
	// ErrSyntax means that a text is not an id in its format.
	ErrSyntax = errors.New("snowflake: not an id")
	// ErrRange means that a number or a part does not fit: a negative id, one above 63 bits or the
	// layout's, one that is wider than its field.
	ErrRange = errors.New("snowflake: out of range")
)

// WindowEndedError is [ErrWindowEnded] with the end.
type WindowEndedError struct{ End time.Time }

// Error reports when the window ended.
func (e *WindowEndedError) Error() string {
	return fmt.Sprintf("%v: at %s", ErrWindowEnded, e.End.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// Unwrap returns ErrWindowEnded.
func (e *WindowEndedError) Unwrap() error { return ErrWindowEnded }
