package workerlease

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// The errors of a pool besides redisstore's own. redisstore.RetryAfter returns how long to wait
// after ErrExhausted, until the first slot can be free, and after ErrQuarantined, until every
// window that may be open has ended.
var (
	ErrLost        = fault.Loss("workerlease: the lease is no longer yours")
	ErrExhausted   = fault.Refusal("workerlease: every worker id of the pool is taken or cooling")
	ErrQuarantined = fault.Refusal("workerlease: the pool grants nothing yet")
	ErrOtherPool   = fault.Refusal("workerlease: the pool has another layout, epoch, datacenter or ttl")
	ErrExists      = fault.Refusal("workerlease: the pool is there already")
	ErrInvalid     = fault.Refusal("workerlease: the request is not valid")
	ErrNotFound    = fault.Refusal("workerlease: no such pool")
	// ErrEnded means that the pool's layout has no timestamps left: nothing can be stamped.
	ErrEnded  = fault.Refusal("workerlease: the pool's layout has no timestamps left")
	ErrLayout = holder.ErrLayout // of a Stamper, which cannot stamp the pool's layout
)

// OtherPoolError is [ErrOtherPool] or [ErrExists] with the pool's shape and TTL.
type OtherPoolError struct {
	Layout     string
	Epoch      time.Time
	Datacenter int
	TTL        time.Duration
	New        bool          // the pool is not there: this is what it would get from such a request
	Wait       time.Duration // how long a window of it can still be open, if it was to be replaced
	is         error
}

// RetryAfter returns Wait.
func (e *OtherPoolError) RetryAfter() time.Duration { return e.Wait }

// Error reports the pool's shape and TTL.
func (e *OtherPoolError) Error() string {
	if e.New {
		return fmt.Sprintf("%v: it is not there, and would begin with layout %s, epoch %s, datacenter %d; "+
			"another shape takes who may declare pools, or the settings of the service",
			e.is, e.Layout, e.Epoch.Format(time.RFC3339), e.Datacenter)
	}
	if e.Wait > 0 {
		return fmt.Sprintf("%v, and a window of it can be open for %v", e.is, e.Wait)
	}
	return fmt.Sprintf("%v: it has layout %s, epoch %s, datacenter %d, ttl %v",
		e.is, e.Layout, e.Epoch.Format(time.RFC3339), e.Datacenter, e.TTL)
}

// Unwrap returns the sentinel.
func (e *OtherPoolError) Unwrap() error { return e.is }

// refusal is the error for a reply about a pool.
func (p *Pools) refusal(pool string, reply scripts.Reply) error {
	switch reply.Word() {
	case "longest":
		var used time.Duration // the pool's TTL, or the longest that another process allows
		if err := reply.Scan(&used); err != nil {
			return err
		}
		// after a loss this process would wait for too short a time
		return fmt.Errorf("%w: it is used with a longest ttl of %v, and this process allows %v: "+
			"set it to one value in all processes (--worker-longest-ttl)", ErrOtherPool, used, p.LongestTTL(pool))
	case "lost":
		return ErrLost
	case "unknown":
		return ErrNotFound
	case "ended":
		return ended(pool, reply)
	case "layout", "exists":
		if has := reply.Values(); len(has) > 0 && has[0] == "" {
			return fmt.Errorf("%w, without the record of its shape: lease a worker id of it, which waits until none can be in use", ErrExists)
		}
		// milliseconds to wait, or 1 for a pool that is not there
		other, last := &OtherPoolError{is: ErrOtherPool}, 0
		if err := reply.Scan(&other.Layout, &other.Epoch, &other.Datacenter, &other.TTL, &last); err != nil {
			return err
		}
		other.New = reply.Word() == "layout" && last == 1
		if reply.Word() == "exists" {
			other.is, other.Wait = ErrExists, time.Duration(last)*time.Millisecond
		}
		return other
	case "exhausted":
		return waitFor(reply, ErrExhausted, "; the first can be free in {wait}")
	case "quarantined":
		return p.quarantined(pool, reply)
	}
	return reply.Unexpected()
}

// ended reports when the layout has ended, and what goes on.
func ended(pool string, reply scripts.Reply) error {
	shape := Shape{}
	if err := reply.Scan(&shape.Layout, &shape.Epoch); err != nil {
		return err
	}
	layout, err := snowflake.ParseLayout(shape.Layout)
	if err != nil {
		return fmt.Errorf("%w: layout %s", ErrEnded, shape.Layout)
	}
	text := "take another pool"
	if more := min(63-bits.Len64(uint64(layout.Max())), 8); more > 0 { //nolint:gosec // it is not negative
		wider := layout
		wider.Timestamp += more
		text += fmt.Sprintf(", or give this one a wider timestamp, so that its ids go on rising: "+
			"coatcheck worker create --replace %s --layout %v", pool, wider)
	}
	return fmt.Errorf("%w: those of %v have ended at %s; %s", ErrEnded, layout, layout.Lasts(shape.Epoch).Format(time.RFC3339), text)
}

// quarantined reports what happened, what is safe to assume, the command that goes on where there
// is one, and the setting that avoids it.
func (p *Pools) quarantined(pool string, reply scripts.Reply) error {
	var text, unknown string
	refused := &fault.WaitError{Err: ErrQuarantined}
	if err := reply.Scan(&refused.Wait, &text, &unknown); err != nil {
		return err
	}
	why := fault.Why(text)
	if unknown == "1" && why == fault.Missing {
		return p.unknownHere(pool, refused)
	}
	refused.Text = ": " + why.Happened(time.Time{}) +
		". Worker ids that were granted before may be in use for {wait} more, and none is granted until then"
	if unknown == "1" {
		refused.Text += fmt.Sprintf(". If the pool is new, and none of its worker ids is in use: coatcheck worker create %s", pool)
	}
	refused.Text += why.Avoid()
	return refused
}

// unknownHere is the refusal of a pool that this Redis knows nothing of, which is new as a rule.
func (p *Pools) unknownHere(pool string, refused *fault.WaitError) error {
	refused.Text = fmt.Sprintf(": the pool is new to this Redis. If it is new altogether, say so, and it grants at once: "+
		"coatcheck worker create %s. Else it grants in {wait}, when no worker id from before can be in use", pool)
	return &NewPoolError{Err: refused}
}

// NewPoolError is the [ErrQuarantined] of a pool that this Redis has no record of: nothing shows
// that anything was lost.
type NewPoolError struct {
	Err error // says how it goes on; redisstore.RetryAfter finds in it when
}

// Error is that of Err.
func (e *NewPoolError) Error() string { return e.Err.Error() }

// Unwrap returns what it is.
func (e *NewPoolError) Unwrap() error { return e.Err }

func waitFor(reply scripts.Reply, err error, text string) error {
	refused := &fault.WaitError{Err: err, Text: text}
	if err := reply.Scan(&refused.Wait); err != nil {
		return err
	}
	return refused
}
