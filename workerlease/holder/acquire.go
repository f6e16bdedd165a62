package holder

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/snowflake"
)

const (
	forever      = time.Duration(math.MaxInt64)
	shortestWait = 50 * time.Millisecond
	// also after a longer stated wait: a holder may release, or a pool be declared new, meanwhile.
	longestWait = 5 * time.Second
)

// acquire asks for a grant, again and again until the wait is over or asking cannot help; with a
// caller who is told at once, until it is refused. It keeps one nonce until the outcome is known,
// so that a lost reply costs nothing.
func (h *Holder) acquire(longest time.Duration, told bool) (*term, error) {
	began, pause, nonce := time.Now(), shortestWait, secret.New()
	for {
		sent, wall := time.Now(), h.options.Wall()
		lease, err := h.leaser.Acquire(h.ctx, nonce)
		step.At("holder: has the answer to a request")
		if err == nil {
			layout, unread := snowflake.ParseLayout(lease.Layout)
			if unread != nil {
				h.giveBack(lease)
				return nil, fmt.Errorf("%w: %w", ErrLayout, unread)
			}
			t := h.begin(lease, layout, sent, wall)
			if t != nil {
				return t, nil
			}
			nonce, err = secret.New(), ErrLate
		}
		if h.ctx.Err() != nil {
			return nil, context.Cause(h.ctx)
		}
		verdict := h.leaser.Judge(err)
		wait := spread(verdict.Wait, pause)
		if verdict.Final || told && verdict.Refused || time.Since(began) > longest-wait {
			return nil, err
		}
		h.options.Observe(Event{Kind: KindWaiting, Err: err, Wait: wait})
		if !h.pause(wait) {
			return nil, fmt.Errorf("%w: %w", context.Cause(h.ctx), err)
		}
		pause = min(2*pause, longestWait)
	}
}

// spread lengthens a wait, so that those who wait for the same spread: a stated one by up to half a
// second, since a grant can be had from then on, another by up to half. named 0 = none is stated.
func spread(named, pause time.Duration) time.Duration {
	wait, more := pause, pause/2
	if named > 0 {
		wait = min(max(named, shortestWait), longestWait)
		more = min(wait, time.Second) / 2
	}
	return wait + rand.N(more) //nolint:gosec // it spreads a load, and guessing it gains nothing
}

func (h *Holder) pause(d time.Duration) bool {
	select {
	case <-h.ctx.Done():
		return false
	case <-h.hurry:
		return true
	case <-time.After(d):
		return true
	}
}

// AskNow ends a wait between two requests for a grant, the present one or the next: for a caller
// that knows of a reason why one may be had, such as a pool that was declared.
func (h *Holder) AskNow() {
	select {
	case h.hurry <- struct{}{}:
	default: // it is to end already
	}
}

// begin keeps a lease that was granted; nil if it cannot be counted on any more. Its window is
// shorter than its TTL if the grant is an older one, asked for again.
func (h *Holder) begin(lease Lease, layout snowflake.Layout, sent, wall time.Time) *term {
	t := &term{lease: lease, layout: layout, clock: anchor{time: lease.Now, at: time.Now()}, held: make(chan struct{})}
	age := max(lease.TTL-lease.NotAfter.Sub(lease.Now), 0)
	t.keeper = keepalive.Start(h.ctx, sent.Add(-age), wall.Add(-age), keepalive.Config{
		TTL: lease.TTL, Margin: h.options.Margin, Wall: h.options.Wall, Strict: h.options.Strict,
		Renew: func(ctx context.Context) error { return h.renew(ctx, t) },
		Lost:  func(err error) bool { return h.leaser.Judge(err).Lost },
		Failed: func(err error) {
			h.options.Observe(Event{Kind: KindRenewalFailed, Pool: lease.Pool, WorkerID: lease.WorkerID, Err: err})
		},
	})
	if t.keeper.Valid() > 0 {
		return t
	}
	t.keeper.Stop()
	step.At("holder: the grant is of no use")
	if h.ctx.Err() != nil { // it came while the holding was ended
		h.giveBack(lease)
	}
	return nil
}

// farewell is how long the release of a grant without a waiting caller may take.
const farewell = time.Second

// giveBack releases a grant with which nothing was stamped.
func (h *Holder) giveBack(lease Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), farewell)
	defer cancel()
	_ = h.leaser.Release(ctx, lease, lease.NotBefore) // else it ends with its window
}

func (h *Holder) renew(ctx context.Context, t *term) error {
	select {
	case <-t.held:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	lease, _ := t.read()
	sent := time.Now()
	renewed, err := h.leaser.Renew(ctx, lease)
	step.At("holder: has the answer to a renewal")
	if err != nil {
		return err
	}
	t.mu.Lock()
	now := time.Now()
	if was := t.clock.read(now); was.After(t.peak) {
		t.peak = was
	}
	t.lease, t.clock = renewed, t.clock.moved(renewed.Now, sent, now)
	t.mu.Unlock()
	h.options.Observe(Event{Kind: KindRenewed, Pool: lease.Pool, WorkerID: lease.WorkerID})
	return nil
}
