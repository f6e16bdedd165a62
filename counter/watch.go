package counter

import (
	"context"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/scripts"
)

// watch looks whether Redis has lost everything, so that a process which is not adding says in time what it has seen: a few times within the hold-off. It runs from the first
// use of a counter until Close.
type watch struct {
	once   sync.Once
	mu     sync.Mutex
	cancel context.CancelFunc
	ended  chan struct{}
}

const looks = 4 // within a hold-off

func (w *watch) start(c *Counters) {
	w.once.Do(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel, w.ended = cancel, make(chan struct{})
		go c.keepWatch(ctx, w.ended)
	})
}

func (w *watch) stop() {
	w.once.Do(func() {})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
		<-w.ended
	}
}

func (c *Counters) keepWatch(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	ticker := time.NewTicker(c.config.HoldOff / looks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.look(ctx)
		}
	}
}

// look asks each slot for its era. Where everything was lost it tells what was seen of the counters; where only the incarnation is another, each counter is put in order
// when it is used.
func (c *Counters) look(ctx context.Context) {
	lost := map[string]bool{}
	c.eras.Range(func(marker, era any) bool {
		reply, err := c.store.Run(ctx, scripts.CounterEra, []string{marker.(string)}, era, c.config.HoldOff.Milliseconds())
		if err != nil {
			return ctx.Err() == nil
		}
		var now string
		var left time.Duration
		if reply.Word() == "changed" && reply.Scan(&now, &left) == nil {
			c.knows(marker.(string), now)
			lost[marker.(string)] = left > 0
		}
		return true
	})
	if len(lost) == 0 {
		return
	}
	c.keys.Range(func(_, value any) bool {
		if e := value.(*entry); lost[c.store.Marker(c.config.Kind, e.key)] && e.hasSeen() {
			_, _ = c.open(ctx, e, 0) // it takes in what was seen; the answer is for those who add
		}
		return ctx.Err() == nil
	})
}

func (e *entry) hasSeen() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}
