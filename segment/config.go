package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// The defaults of a [Config].
const (
	DefaultPeriod  = 15 * time.Minute
	DefaultMaxStep = 1_000_000
	DefaultMaxTags = 10_000
	DefaultIdle    = 24 * time.Hour
	DefaultTimeout = 5 * time.Second
	DefaultAhead   = 0.1
)

// Config is how ranges are fetched. The zero value of each field means the default of its name.
type Config struct {
	// Period is how long one range should last: the step follows the demand. 1ms to 720h.
	Period time.Duration
	// MaxStep is the largest step, in ids: 1 to 2^40. A tag with a larger least step keeps that.
	MaxStep int64
	// MaxTags is how many tags may be in use at once: 1 to 10,000,000, at about a kilobyte each.
	MaxTags int
	// Owner returns the owner of a tag that a call opens, from the call's context. With MaxTags in
	// use, the owner of the most of them gives one up for an owner with fewer, the one that was
	// unused for longest. nil = all tags are one owner's.
	Owner func(context.Context) string
	// Idle is how long an unused tag is kept: 1s to 8784h. Then the rest of its ranges is lost.
	Idle time.Duration
	// Timeout is how long one Take may last: 1ms to 10m. It is not the callers' limit: they wait
	// for as long as their contexts do.
	Timeout time.Duration
	// Ahead is how much of a range is used before the next is fetched: above 0, up to 0.9.
	Ahead float64
	// Logger logs failures and tags that are dropped; nil = slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Period = cmp.Or(c.Period, DefaultPeriod)
	c.MaxStep = cmp.Or(c.MaxStep, DefaultMaxStep)
	c.MaxTags = cmp.Or(c.MaxTags, DefaultMaxTags)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Ahead = cmp.Or(c.Ahead, DefaultAhead)
	if c.Owner == nil {
		c.Owner = func(context.Context) string { return "" }
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Check returns all faults of a Config.
func (c Config) Check() error {
	c = c.withDefaults()
	return errors.Join(
		inRange("period", c.Period, time.Millisecond, 720*time.Hour),
		inRange("max step", c.MaxStep, 1, 1<<40),
		inRange("max tags", c.MaxTags, 1, 10_000_000),
		inRange("idle", c.Idle, time.Second, 8784*time.Hour),
		inRange("timeout", c.Timeout, time.Millisecond, 10*time.Minute),
		inRange("ahead", c.Ahead, 0, 0.9),
	)
}

// inRange is written so that a float that is NaN is refused.
func inRange[T int | int64 | float64 | time.Duration](field string, value, least, most T) error {
	if value >= least && value <= most {
		return nil
	}
	return fmt.Errorf("segment: %s %v: %v to %v", field, value, least, most)
}

// spare is how long a tag must have been unused before it makes room for another.
func (c Config) spare() time.Duration { return min(c.Idle, DefaultPeriod) }
