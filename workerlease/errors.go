package workerlease

import (
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/scripts"
)

// What a pool can answer besides redisstore's own errors.
var (
	ErrLost        = fault.Loss("workerlease: the lease is no longer yours")
	ErrExhausted   = fault.Refusal("workerlease: every worker id of the pool is taken or cooling")
	ErrQuarantined = fault.Refusal("workerlease: the pool's state may have been lost")
	ErrOtherPool   = fault.Refusal("workerlease: the pool has another layout, epoch, datacenter or ttl")
	ErrExists      = fault.Refusal("workerlease: the pool is there already")
	ErrRequest     = fault.Refusal("workerlease: the request is not valid")
	ErrUnknown     = fault.Refusal("workerlease: no such pool")
)

// Exhausted is [ErrExhausted] with the time until the first slot can be free.
type Exhausted struct{ Wait time.Duration }

// Error says how long to wait.
func (e *Exhausted) Error() string {
	return fmt.Sprintf("%v; the first can be free in %v", ErrExhausted, e.Wait)
}

// RetryAfter returns Wait.
func (e *Exhausted) RetryAfter() time.Duration { return e.Wait }

// Unwrap gives ErrExhausted.
func (e *Exhausted) Unwrap() error { return ErrExhausted }

// Quarantined is [ErrQuarantined] with the time until every window that may be open has ended.
type Quarantined struct{ Wait time.Duration }

// Error says how long to wait, and what ends it at once.
func (e *Quarantined) Error() string {
	return fmt.Sprintf("%v: no worker id is granted for %v, until every one that may be in use has ended. A pool that is new can be declared so", ErrQuarantined, e.Wait)
}

// RetryAfter returns Wait.
func (e *Quarantined) RetryAfter() time.Duration { return e.Wait }

// Unwrap gives ErrQuarantined.
func (e *Quarantined) Unwrap() error { return ErrQuarantined }

// OtherPool is [ErrOtherPool] or [ErrExists] with what the pool is.
type OtherPool struct {
	Layout     string
	Epoch      time.Time
	Datacenter int
	TTL        time.Duration
	New        bool          // the pool is not there: this is what it would get from such a request
	Wait       time.Duration // how long a window of it can still be open, if it was to be replaced
	is         error
}

// RetryAfter returns Wait.
func (e *OtherPool) RetryAfter() time.Duration { return e.Wait }

// Error says what the pool is.
func (e *OtherPool) Error() string {
	if e.New {
		return fmt.Sprintf("%v: it is not there, and would begin with layout %s, epoch %s, datacenter %d; another shape takes who may declare pools, or the settings of the service",
			e.is, e.Layout, e.Epoch.Format(time.RFC3339), e.Datacenter)
	}
	if e.Wait > 0 {
		return fmt.Sprintf("%v, and a window of it can be open for %v", e.is, e.Wait)
	}
	return fmt.Sprintf("%v: it has layout %s, epoch %s, datacenter %d, ttl %v", e.is, e.Layout, e.Epoch.Format(time.RFC3339), e.Datacenter, e.TTL)
}

// Unwrap gives the sentinel.
func (e *OtherPool) Unwrap() error { return e.is }

// TTLError is [ErrRequest] about a TTL that is longer than the settings allow, or shorter than any
// may be.
type TTLError struct {
	TTL     time.Duration // that was asked for
	Longest time.Duration // that is allowed
}

// Error says the bounds.
func (e *TTLError) Error() string {
	return fmt.Sprintf("%v: ttl %v: %v to %v, the longest that the settings allow", ErrRequest, e.TTL, MinTTL, e.Longest)
}

// Unwrap gives ErrRequest.
func (e *TTLError) Unwrap() error { return ErrRequest }

// LongestTTLError says that the longest TTL of this process is shorter than one with which the pool
// is used: after a loss it would wait for too short a time. Nothing was granted. It is an
// [ErrOtherPool].
type LongestTTLError struct {
	Used    time.Duration // the pool's TTL, or the longest that another process allows
	Longest time.Duration // that this process allows
}

// Error says both, and what mends it.
func (e *LongestTTLError) Error() string {
	return fmt.Sprintf("workerlease: the pool is used with a longest ttl of %v, and this process allows %v: set it to one value in all processes (--worker-longest-ttl)", e.Used, e.Longest)
}

// Unwrap gives ErrOtherPool.
func (e *LongestTTLError) Unwrap() error { return ErrOtherPool }

// refusal is the error that a reply about a pool stands for.
func (p *Pools) refusal(pool string, reply scripts.Reply) error {
	switch reply.Word() {
	case "longest":
		longest := &LongestTTLError{Longest: p.LongestTTL(pool)}
		if err := reply.Scan(&longest.Used); err != nil {
			return err
		}
		return longest
	case "lost":
		return ErrLost
	case "unknown":
		return ErrUnknown
	case "layout", "exists":
		// milliseconds to wait, or 1 for a pool that is not there
		other, last := &OtherPool{is: ErrOtherPool}, 0
		if err := reply.Scan(&other.Layout, &other.Epoch, &other.Datacenter, &other.TTL, &last); err != nil {
			return err
		}
		other.New = reply.Word() == "layout" && last == 1
		if reply.Word() == "exists" {
			other.is, other.Wait = ErrExists, time.Duration(last)*time.Millisecond
		}
		return other
	case "exhausted":
		var exhausted Exhausted
		if err := reply.Scan(&exhausted.Wait); err != nil {
			return err
		}
		return &exhausted
	case "quarantined":
		var quarantined Quarantined
		if err := reply.Scan(&quarantined.Wait); err != nil {
			return err
		}
		return &quarantined
	}
	return reply.Unexpected()
}
