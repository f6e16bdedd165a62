package counter

import (
	"fmt"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// The answers of a counter besides redisstore's own errors. All are refusals: nothing was added
// that a caller gets.
var (
	ErrNotAnInteger = fault.Refusal("counter: the value is not a signed 64-bit integer")
	ErrOverflow     = fault.Refusal("counter: the value would overflow 64 bits")
	ErrLimit        = fault.Refusal("counter: the value would be out of the request's limits")
	ErrRequest      = fault.Refusal("counter: out of range")
	ErrOtherRequest = fault.Refusal("counter: the request id was used with another by")
	ErrUnknown      = fault.Refusal("counter: no such counter")
	// ErrBehind is for a counter that has lost values, or may have, under [Refuse], or where moving
	// it past them would leave no value within the limit of a request. It is a [*BehindError]. Set
	// the counter to go on.
	ErrBehind = fault.Refusal("counter: it has gone back, or may have")
	// ErrPast is for a counter that is to be set forward, and is past that value.
	ErrPast = fault.Refusal("counter: it is past that value already")
	// ErrHoldOff is for the time after a loss of everything in which processes report what they
	// have seen. redisstore.RetryAfter returns how long it is.
	ErrHoldOff = fault.Refusal("counter: values may have been lost; nothing is added until every process has said what it has seen")
)

// errNotInOrder is for a counter that was opened in vain as often as one call does that.
var errNotInOrder = fmt.Errorf("%w: counter: not found in order in several attempts; ask again", fault.ErrUnavailable)

// BehindError is an [ErrBehind] with the values that are known.
type BehindError struct {
	Value int64 // what is there
	Seen  int64 // the largest that this process has seen; 0 if it has seen none
	Limit int64 // of the request, which moving the counter would pass; 0 under Refuse
}

// Error reports the value, and the remedy.
func (e *BehindError) Error() string {
	if e.Limit != 0 {
		return fmt.Sprintf("%v: at %d, after %d was handed out here; past all that may have been lost it would have no value up to %d; set it by what was handed out to go on",
			ErrBehind, e.Value, e.Seen, e.Limit)
	}
	return fmt.Sprintf("%v: at %d, after %d was handed out here; set it past all values to go on", ErrBehind, e.Value, e.Seen)
}

// Unwrap returns ErrBehind.
func (e *BehindError) Unwrap() error { return ErrBehind }
