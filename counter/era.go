package counter

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// knownEra is the era of a slot as this process knows it, and since when it does, by its clock.
type knownEra struct {
	era   string
	since time.Duration
}

// isNew reports whether other processes may not have found yet that the slot had lost everything
// before this era began. They take a part of a hold-off for that.
func (k knownEra) isNew(now, holdOff time.Duration) bool { return now-k.since < holdOff }

func (c *Counters) eraOf(marker string) (k knownEra, is bool) {
	found, is := c.eras.Load(marker)
	if is {
		k = found.(knownEra)
	}
	return k, is
}

// knows records the era of a slot that was not known. If it differs from the one before, the watch
// has to find that: it concerns all counters of the slot.
func (c *Counters) knows(marker, era string) { c.eras.LoadOrStore(marker, knownEra{era, clock()}) }

// trial is a context that ends when one of the new eras that this process knows has ended.
type trial struct {
	context.Context

	end context.CancelFunc
}

func newTrial() *trial {
	ctx, end := context.WithCancel(context.Background())
	return &trial{ctx, end}
}

// Unproven returns a context for values of a key that this process gets next, and hands out later.
// A process that starts just after Redis has lost everything takes it for new, and gets values that
// others have had. The context ends when this turns out. It is nil once the others have had a
// hold-off for finding the loss. An embedded store has no others.
func (c *Counters) Unproven(key string) context.Context {
	known, is := c.eraOf(c.marker(key))
	if c.store.Mode() == redisstore.ModeEmbedded || is && !known.isNew(clock(), c.config.HoldOff) {
		return nil
	}
	return c.trial.Load()
}

// failTrial is for a new era that has ended: what was got under it may be others', and what is got
// from now on is on another trial.
func (c *Counters) failTrial() { c.trial.Swap(newTrial()).end() }
