package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// The answers of a lock besides redisstore's own errors.
var (
	ErrHeld     = fault.Refusal("lock: held by others")
	ErrLost     = fault.Loss("lock: it is no longer yours")
	ErrRequest  = fault.Refusal("lock: the request is not valid")
	ErrCapacity = fault.Refusal("lock: in use with another number of permits")
	ErrInDoubt  = fault.Refusal("lock: leases that are still open may have been lost")
	ErrNoHolder = fault.Refusal("lock: no holder has that fence")
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
	Since time.Time     // when the holder got it; zero if that is not known
	Left  time.Duration // until its lease ends, unless it is renewed; negative if that is not known
}

// Error reports since when the lock is held.
func (h *HeldError) Error() string {
	if h.Since.IsZero() {
		return ErrHeld.Error()
	}
	return fmt.Sprintf("%v, since %s", ErrHeld, h.Since.Format(time.RFC3339Nano))
}

// RetryAfter returns Left, and 0 if that is not known.
func (h *HeldError) RetryAfter() time.Duration { return max(h.Left, 0) }

// Unwrap returns ErrHeld.
func (h *HeldError) Unwrap() error { return ErrHeld }

// CapacityError is [ErrCapacity] with the number of permits that the lock has now.
type CapacityError struct{ Capacity int }

// Error reports the number of permits.
func (o *CapacityError) Error() string { return fmt.Sprintf("%v: it has %d", ErrCapacity, o.Capacity) }

// Unwrap returns ErrCapacity.
func (o *CapacityError) Unwrap() error { return ErrCapacity }

// InDoubtError is [ErrInDoubt] with the time until every lease that may be open has ended.
type InDoubtError struct{ Wait time.Duration }

// Error reports how long to wait.
func (d *InDoubtError) Error() string {
	return fmt.Sprintf("%v: Redis was restarted or replaced; nothing is granted for %v", ErrInDoubt, d.Wait)
}

// RetryAfter returns Wait.
func (d *InDoubtError) RetryAfter() time.Duration { return d.Wait }

// Unwrap returns ErrInDoubt.
func (d *InDoubtError) Unwrap() error { return ErrInDoubt }

// refusal is the error for a reply of lock_enter. A place in the queue counts as held, too.
func refusal(reply scripts.Reply) error {
	switch reply.Word() {
	case "held":
		held := &HeldError{}
		if err := reply.Scan(&held.Since, &held.Left); err != nil {
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
		other := &CapacityError{}
		if err := reply.Scan(&other.Capacity); err != nil {
			return err
		}
		return other
	case "doubt":
		doubt := &InDoubtError{}
		if err := reply.Scan(&doubt.Wait); err != nil {
			return err
		}
		return doubt
	case "lost", "gone":
		return ErrLost
	}
	return reply.Unexpected()
}

// unknown reports whether a call may have had an effect.
func unknown(err error) bool { return errors.Is(err, redisstore.ErrUnknownOutcome) }
