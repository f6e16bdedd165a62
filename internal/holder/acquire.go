package holder

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/secret"
)

const (
	forever      = time.Duration(math.MaxInt64)
	shortestWait = 50 * time.Millisecond
	longestWait  = 5 * time.Second
)

// acquire asks for a grant, again and again while patience lasts and asking can help. One nonce serves until it is known what became of it, so that a
// reply that was lost costs nothing.
func (h *Holder) acquire(patience time.Duration) (*term, error) {
	began, pause, nonce := time.Now(), shortestWait, secret.New()
	for {
		sent := time.Now()
		lease, err := h.leaser.Acquire(h.ctx, nonce)
		if err == nil {
			if t := h.begin(lease, sent); t != nil {
				return t, nil
			}
			nonce = secret.New() // its window has ended, or the reply took too long
			continue
		}
		verdict := h.leaser.Judge(err)
		wait := max(verdict.Wait, pause)
		if h.ctx.Err() != nil {
			return nil, context.Cause(h.ctx)
		}
		if verdict.Final || time.Since(began) > patience-min(wait, patience) {
			return nil, err
		}
		h.options.Observe(Event{Kind: Waiting, Err: err, Wait: wait})
		if !h.pause(wait + rand.N(pause)) {
			return nil, context.Cause(h.ctx)
		}
		pause = min(2*pause, longestWait)
	}
}

func (h *Holder) pause(d time.Duration) bool {
	select {
	case <-h.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// begin keeps a lease that was granted; nil if it can not be counted on any more.
func (h *Holder) begin(lease Lease, sent time.Time) *term {
	t := &term{lease: lease, clock: anchor{time: lease.Now, at: time.Now()}}
	if !lease.NotAfter.After(lease.Now) {
		return nil
	}
	t.keeper = keepalive.Start(h.ctx, sent, keepalive.Config{
		TTL: lease.TTL, Margin: h.options.Margin, Wall: h.options.Wall,
		Renew: func(ctx context.Context) error { return h.renew(ctx, t) },
		Lost:  func(err error) bool { return h.leaser.Judge(err).Lost },
		Failed: func(err error) {
			h.options.Observe(Event{Kind: RenewalFailed, Pool: lease.Pool, WorkerID: lease.WorkerID, Err: err})
		},
	})
	if t.keeper.Valid() <= 0 {
		t.keeper.Stop()
		return nil
	}
	h.options.Observe(Event{Kind: Granted, Pool: lease.Pool, WorkerID: lease.WorkerID})
	return t
}

func (h *Holder) renew(ctx context.Context, t *term) error {
	t.mu.Lock()
	lease := t.lease
	t.mu.Unlock()
	sent := time.Now()
	renewed, err := h.leaser.Renew(ctx, lease)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.lease = renewed
	t.clock = t.clock.moved(renewed.Now, sent, time.Now())
	t.mu.Unlock()
	h.options.Observe(Event{Kind: Renewed, Pool: lease.Pool, WorkerID: lease.WorkerID})
	return nil
}
