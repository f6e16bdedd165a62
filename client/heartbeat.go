package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errLapsed ends a function under Takeover by this process's own clock.
var errLapsed = fmt.Errorf("%w, or may have: the lease can have ended", ErrSuperseded)

// heartbeat keeps a claim alive while its function runs.
type heartbeat struct {
	run  *run
	lose context.CancelCauseFunc // ends the function's context when the claim is lost
	quit context.CancelFunc
	done sync.WaitGroup
}

// beat starts the heartbeat. It goes on when the function's context ends, until the function itself
// has: until then the claim is in use.
func (run *run) beat(ctx context.Context, lose context.CancelCauseFunc) *heartbeat {
	ctx, quit := context.WithCancel(context.WithoutCancel(ctx))
	h := &heartbeat{run: run, lose: lose, quit: quit}
	h.done.Go(func() { h.keep(ctx) })
	return h
}

// stop ends the heartbeat and waits until no extension is under way. One that was sent already does
// no harm: it changes a claim only while that stands.
func (h *heartbeat) stop() {
	h.quit()
	h.done.Wait()
}

// keep extends the lease every third of it. Under Takeover the function's context ends by a timer
// of its own when the lease can have ended, whether or not the service answers.
func (h *heartbeat) keep(ctx context.Context) {
	if h.run.terms.Policy != Takeover {
		h.loop(ctx, func(time.Time) {})
		return
	}
	left := func(sent time.Time) time.Duration { return time.Until(sent.Add(h.run.terms.Lease)) }
	deadline := time.AfterFunc(left(h.run.trusted), func() { h.lose(errLapsed) })
	defer deadline.Stop()
	h.loop(ctx, func(sent time.Time) { deadline.Reset(left(sent)) })
}

func (h *heartbeat) loop(ctx context.Context, extended func(sent time.Time)) {
	tick := time.NewTicker(h.run.terms.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		err := h.extend(ctx)
		switch {
		case err == nil:
			extended(sent)
		case errors.Is(err, ErrLost) || errors.Is(err, ErrUnknownToken):
			h.lose(err)
			return
		case ctx.Err() == nil:
			h.run.client.log.Warn("client: heartbeat failed, trying on", "error", err)
		}
	}
}

// extend sends one heartbeat. One that hangs makes room for the next.
func (h *heartbeat) extend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.run.terms.Lease/3)
	defer cancel()
	_, err := h.run.client.Extend(ctx, h.run.token, h.run.lease, h.run.terms.Lease)
	return err
}
