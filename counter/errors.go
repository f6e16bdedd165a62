package counter

import (
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// The answers of a counter besides redisstore's own errors. All are refusals: nothing was added
// that a caller gets.
var (
	ErrNotAnInteger = fault.Refusal("counter: the value is not a signed 64-bit integer")
	ErrOverflow     = fault.Refusal("counter: the value would overflow 64 bits")
	ErrLimit        = fault.Refusal("counter: the value would be out of the request's limits")
	ErrInvalid      = fault.Refusal("counter: out of range")
	ErrOtherRequest = fault.Refusal("counter: the request id was used with another by")
	ErrNotFound     = fault.Refusal("counter: no such counter")
	// ErrBehind is for a counter that has lost values, or may have, under [AfterLossRefuse], or
	// where moving it past them would leave no value within the limit of a request. It is a
	// [*BehindError]. Set the counter to go on.
	ErrBehind = fault.Refusal("counter: it has gone back, or may have")
	// ErrPermanent is for a counter without an end, and a call with a TTL. It is a
	// [*PermanentError].
	ErrPermanent = fault.Refusal("counter: it has no end")
	// ErrPast is for a counter that is to be set to a value below it, without [SetOptions.Back]. It
	// is a [*PastError].
	ErrPast = fault.Refusal("counter: it is past that value already")
	// ErrCondition is for a counter that is not as a [Condition] says.
	ErrCondition = fault.Refusal("counter: it is not as the condition says")
	// ErrHoldOff is for the time after a loss of everything in which processes report what they
	// have seen. redisstore.RetryAfter returns how long it is.
	ErrHoldOff = fault.Refusal("counter: this Redis has no record of its counters, which may be lost; nothing is added until every " +
		"process has said what it has seen")
)

// errNotInOrder is for a counter that was opened in vain as often as one call does that.
var errNotInOrder = fmt.Errorf("%w: counter: not found in order in several attempts; ask again", fault.ErrUnavailable)

// BehindError is an [ErrBehind] with what is known.
type BehindError struct {
	Kind  string // as [Config.Kind]
	Key   string // of the counter
	Value int64  // what is there
	Seen  int64  // the largest that this process has seen; 0 if it has seen none
	Limit int64  // of the request, which moving the counter would pass; 0 under Refuse
	// of the request, which the counter has to be set with; 0 = none
	TTL     time.Duration
	Why     string    // as scripts/lib/incarnation.lua notes it; "" = the value went back by itself
	Noticed time.Time // when the loss was noticed, by Redis's clock; zero = not known
}

// Error reports what happened, what is safe to assume, the command that goes on, and the setting
// that avoids it.
func (e *BehindError) Error() string {
	last := max(e.Value, e.Seen)
	text := fmt.Sprintf("%v: %s. ", ErrBehind, fault.Why(e.Why).Happened(e.Noticed))
	text += fmt.Sprintf("%d is the last value that is known; later ones may have been handed out, so nothing is handed out now", last)
	if e.Limit != 0 {
		text += fmt.Sprintf(", since moved past all of them it would have no value up to %d", e.Limit)
	}
	command, other := fmt.Sprintf("coatcheck counter set %s %d", e.Key, last), "the last one that was"
	if e.Kind == "segment" {
		command, other = fmt.Sprintf("coatcheck segment set %s %d", e.Key, last+1), "one past the last one that was"
	}
	command += endOption(e.TTL)
	return text + fmt.Sprintf(". If nothing after it was used: %s (else %s)%s", command, other, fault.Why(e.Why).Avoid())
}

// Unwrap returns ErrBehind.
func (e *BehindError) Unwrap() error { return ErrBehind }

// PastError is an [ErrPast] with where the counter is.
type PastError struct{ At int64 }

func (e *PastError) Error() string { return fmt.Sprintf("%v: it is at %d", ErrPast, e.At) }

// Unwrap returns ErrPast.
func (e *PastError) Unwrap() error { return ErrPast }

// PermanentError is an [ErrPermanent] with the counter that has no end.
type PermanentError struct {
	Key   string
	Value int64         // what it is at
	TTL   time.Duration // of the request
}

// Error reports what was refused, and the command that gives the counter an end.
func (e *PermanentError) Error() string {
	return fmt.Sprintf("%v: %s is at %d, and a TTL, which a call with a template or a calendar has as well, counts only for "+
		"the call that begins a counter; nothing was added. Leave it out; "+
		"or, if the counter is to end and begin again at 1: coatcheck counter set %s %d%s", ErrPermanent, e.Key, e.Value, e.Key, e.Value,
		endOption(e.TTL))
}

// Unwrap returns ErrPermanent.
func (e *PermanentError) Unwrap() error { return ErrPermanent }

// endOption is the flag of coatcheck counter set that has a counter end.
func endOption(ttl time.Duration) string {
	if ttl == 0 {
		return ""
	}
	return " --ttl " + ttl.String()
}
