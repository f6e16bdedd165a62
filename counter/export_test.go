package counter

import (
	"context"
	"log/slog"
	"time"
)

// Refusals is the log of refused counters.
type Refusals struct{ refusals }

func (r *Refusals) Log(ctx context.Context, log *slog.Logger, err error, now time.Duration) {
	r.log(ctx, log, err, now)
}

// Poll asks for the eras of some slots, by their markers, as the watch does.
func Poll(ctx context.Context, c *Counters, markers []string) {
	for _, marker := range markers {
		c.knows(marker, "1")
	}
	c.poll(ctx)
}

// Waiting is how many calls of a key wait for additions that are under way.
func Waiting(c *Counters, key string) int {
	e := c.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := 0
	for _, on := range []*lane{&e.plain, &e.ending} {
		for call := on.pending.first; call != nil; call = call.next {
			waiting++
		}
	}
	return waiting
}

// Known is of how many keys this process knows something.
func Known(c *Counters) int { return int(c.count.Load()) }

// MarginWith is the margin by default of a store that waits for ack replicas.
func MarginWith(ack int) int64 { return Config{}.withDefaults(ack).Margin }
