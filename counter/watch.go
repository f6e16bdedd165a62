package counter

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// watch checks whether Redis has lost everything, so that a process that is not adding reports in
// time what it has seen: a few times within the hold-off. It runs from the first use of a counter
// until Close.
type watch struct {
	once    sync.Once
	cancel  context.CancelFunc
	running sync.WaitGroup
}

const (
	polls  = 4   // within a hold-off
	atOnce = 256 // slots that are asked, or counters that are reported, concurrently
)

func (w *watch) start(c *Counters) {
	w.once.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		w.running.Go(func() { c.keepWatch(ctx) })
	})
}

func (w *watch) stop() {
	w.once.Do(func() { w.cancel = func() {} })
	w.cancel()
	w.running.Wait()
}

func (c *Counters) keepWatch(ctx context.Context) {
	ticker := time.NewTicker(c.config.HoldOff / polls)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.poll(ctx)
		}
	}
}

// poll asks each slot for its era, many at once, since a cluster has thousands, and a poll has to
// end within the hold-off. Where everything was lost it reports what was seen of the counters;
// where only the incarnation is another, each counter is put in order when it is used.
func (c *Counters) poll(ctx context.Context) {
	changed, lost := map[string]bool{}, map[string]bool{}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	failed := false
	c.eras.Range(func(key, value any) bool {
		marker, known := key.(string), value.(knownEra)
		isNew := known.isNew(clock(), c.config.HoldOff)
		asking.Go(func() error {
			reply, err := onstore.Run(ctx, c.store, scripts.CounterEra, []string{marker}, known.era, c.config.HoldOff.Milliseconds())
			var now string
			var left time.Duration
			if err == nil && reply.Word() == "changed" && reply.Scan(&now, &left) == nil {
				c.eras.Store(marker, knownEra{now, clock()})
				mu.Lock()
				defer mu.Unlock()
				changed[marker], lost[marker], failed = true, left > 0, failed || isNew
			}
			return nil
		})
		return ctx.Err() == nil
	})
	_ = asking.Wait() // they return no error
	if failed {
		c.failTrial()
	}
	if len(changed) == 0 {
		return
	}
	step.At("counter: an era has changed")
	var reports errgroup.Group
	reports.SetLimit(atOnce)
	c.keys.Range(func(_, value any) bool {
		e := value.(*entry)
		marker := c.marker(e.key)
		if changed[marker] {
			e.doubt()
		}
		if lost[marker] && e.hasSeen() {
			reports.Go(func() error {
				c.report(ctx, e)
				return nil
			})
		}
		return ctx.Err() == nil
	})
	_ = reports.Wait() // they return no error
}

// report sends Redis what this process has seen of a counter, and retries while Redis cannot be
// reached. The answer is for the calls that add.
func (c *Counters) report(ctx context.Context, e *entry) {
	for ctx.Err() == nil {
		if _, err := c.open(ctx, e, e.lastNeed()); !errors.Is(err, redisstore.ErrUnavailable) &&
			!errors.Is(err, redisstore.ErrUnknownOutcome) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.config.HoldOff / polls / 10):
		}
	}
}

func (e *entry) hasSeen() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}
