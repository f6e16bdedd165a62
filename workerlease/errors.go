package workerlease

import (
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// What a pool can answer besides redisstore's own errors.
var (
	ErrLost        = redisstore.Loss("workerlease: the lease is no longer yours")
	ErrExhausted   = redisstore.Refusal("workerlease: every worker id of the pool is taken or cooling")
	ErrQuarantined = redisstore.Refusal("workerlease: the pool's state may have been lost")
	ErrOtherPool   = redisstore.Refusal("workerlease: the pool has another layout, epoch, datacenter or ttl")
	ErrExists      = redisstore.Refusal("workerlease: the pool is there already")
	ErrRequest     = redisstore.Refusal("workerlease: the request is not valid")
	ErrUnknown     = redisstore.Refusal("workerlease: no such pool")
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
	is         error
}

// Error says what the pool is.
func (e *OtherPool) Error() string {
	return fmt.Sprintf("%v: it has layout %s, epoch %s, datacenter %d, ttl %v", e.is, e.Layout, e.Epoch.Format(time.RFC3339), e.Datacenter, e.TTL)
}

// Unwrap gives the sentinel.
func (e *OtherPool) Unwrap() error { return e.is }

// refusal is the error that a reply stands for.
func refusal(reply redisstore.Reply) error {
	switch reply.Word() {
	case "lost":
		return ErrLost
	case "unknown":
		return ErrUnknown
	case "layout", "exists":
		other := &OtherPool{is: ErrOtherPool}
		if reply.Word() == "exists" {
			other.is = ErrExists
		}
		if err := reply.Scan(&other.Layout, &other.Epoch, &other.Datacenter, &other.TTL); err != nil {
			return err
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
