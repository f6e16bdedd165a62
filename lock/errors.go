package lock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// The answers of a lock besides redisstore's own errors. After ErrInDoubt redisstore.RetryAfter
// returns the time until every lease that may be open has ended.
var (
	ErrHeld     = fault.Refusal("lock: held by others")
	ErrLost     = fault.Loss("lock: it is no longer yours")
	ErrInvalid  = fault.Refusal("lock: the request is not valid")
	ErrPermits  = fault.Refusal("lock: in use with another number of permits")
	ErrInDoubt  = fault.Refusal("lock: leases that are still open may have been lost")
	ErrNoHolder = fault.Refusal("lock: it has no such holder")
)

// Causes with which the context of a [Lock] ends, beside ErrLost alone and the causes of the
// context that it was acquired with.
var (
	// ErrDeadline, which comes with ErrLost, means that no renewal was confirmed in time. The lock
	// may still be there, but its holder must not count on it.
	ErrDeadline = keepalive.ErrDeadline
	// ErrReleased means that the lock was given back.
	ErrReleased = keepalive.ErrReleased
)

// errLate is the cause of an end by the clock.
var errLate = fmt.Errorf("%w: %w", ErrLost, ErrDeadline)

// HeldError is [ErrHeld] with what is known of the holder.
type HeldError struct {
	Owner string        // as the holder named itself, one of several; "" if that is not known
	Since time.Time     // when the holder got it; zero if that is not known
	Left  time.Duration // until its lease ends, unless it is renewed; negative if that is not known
	// Holders is how many hold it together; 0 = it is exclusive, or that is not known.
	Holders int
}

// Error reports by whom and since when the lock is held.
func (h *HeldError) Error() string {
	var known []string
	if h.Owner != "" {
		known = append(known, fmt.Sprintf("by %q", h.Owner))
	}
	if !h.Since.IsZero() {
		known = append(known, "since "+h.Since.Format(time.RFC3339Nano))
	}
	if h.Holders >= MaxHolders {
		known = append(known, fmt.Sprintf("and by %d more; a lock has at most %d holders", h.Holders-1, MaxHolders))
	}
	if known == nil {
		return ErrHeld.Error()
	}
	return fmt.Sprintf("%v: %s", ErrHeld, strings.Join(known, ", "))
}

// RetryAfter returns Left, and 0 if that is not known.
func (h *HeldError) RetryAfter() time.Duration { return max(h.Left, 0) }

// Unwrap returns ErrHeld.
func (h *HeldError) Unwrap() error { return ErrHeld }

// inDoubt is ErrInDoubt with the time until every lease that may be open has ended.
func inDoubt(wait time.Duration) error {
	return &fault.WaitError{Err: ErrInDoubt, Wait: wait, Text: ": Redis was restarted or replaced; nothing is granted for {wait}"}
}

// refusal is the error for a reply of lock_enter. A place in the queue counts as held, too.
func refusal(reply scripts.Reply) error {
	switch reply.Word() {
	case "held":
		held := &HeldError{}
		if err := reply.Scan(&held.Since, &held.Left, &held.Owner, &held.Holders); err != nil {
			return err
		}
		if held.Since.UnixMilli() == 0 {
			held.Since = time.Time{}
		}
		return held
	case "waiting":
		held, place := &HeldError{}, 0
		if err := reply.Scan(&place, &held.Left); err != nil {
			return err
		}
		return held
	case "capacity":
		permits := 0
		if err := reply.Scan(&permits); err != nil {
			return err
		}
		return fmt.Errorf("%w: it has %d", ErrPermits, permits)
	case "doubt":
		wait := time.Duration(0)
		if err := reply.Scan(&wait); err != nil {
			return err
		}
		return inDoubt(wait)
	case "lost", "gone":
		return ErrLost
	}
	return reply.Unexpected()
}

// unknown reports whether a call may have had an effect.
func unknown(err error) bool { return errors.Is(err, redisstore.ErrUnknownOutcome) }
