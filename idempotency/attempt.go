package idempotency

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Attempt is what a guarded handler may know of its claim. It is safe for concurrent use.
type Attempt struct {
	Fence     int64  // larger than that of every attempt of this token before; below 2^53. Give it to what must refuse an older attempt
	Number    int    // counts from 1; more than 1 only under Takeover or after NotBegun
	Operation string // 32 characters that name the operation: the same for all attempts of one token or key, another for any other. Fit for a unique column
	notBegun  atomic.Bool
	inDoubt   atomic.Bool
}

// NotBegun says that the operation provably had no effect, such as a request that failed validation: the answer is sent but not recorded, and the same
// token may be used again, with another payload too. A handler that has touched anything outside must not call it.
func (a *Attempt) NotBegun() { a.notBegun.Store(true) }

// InDoubt says that the operation may or may not have had its effect, such as a call to somebody else that timed out: the answer is sent but not recorded,
// and the token is in doubt at once. Under Hold later requests hear "outcome unknown"; under Takeover the next one may run. It wins over NotBegun.
func (a *Attempt) InDoubt() { a.inDoubt.Store(true) }

type contextKey struct{}

// FromContext returns the attempt of a guarded handler; ok is false outside of one.
func FromContext(ctx context.Context) (attempt *Attempt, ok bool) {
	attempt, ok = ctx.Value(contextKey{}).(*Attempt)
	return attempt, ok
}

// heartbeat keeps a claim alive while its handler runs.
type heartbeat struct {
	tokens *Tokens
	ref    Ref
	owner  string
	terms  Terms
	cancel context.CancelCauseFunc // ends the handler's context when the claim is lost
	quit   chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// beat starts the heartbeat. claimed is the moment before the claim was sent: from there the process trusts its own claim for one lease.
func (t *Tokens) beat(ref Ref, owner string, terms Terms, claimed time.Time, cancel context.CancelCauseFunc) *heartbeat {
	h := &heartbeat{tokens: t, ref: ref, owner: owner, terms: terms, cancel: cancel, quit: make(chan struct{})}
	h.done.Go(func() { h.run(claimed) })
	return h
}

// run extends the lease every third of it. Under Takeover the handler's context ends by a timer of its own when the lease can have ended, whether or
// not Redis answers: from then on somebody else may run.
func (h *heartbeat) run(trusted time.Time) {
	if h.terms.Policy == Takeover {
		deadline := time.AfterFunc(time.Until(trusted.Add(h.terms.Lease)), func() { h.cancel(ErrSuperseded) })
		defer deadline.Stop()
		h.loop(func(sent time.Time) { deadline.Reset(time.Until(sent.Add(h.terms.Lease))) })
		return
	}
	h.loop(func(time.Time) {})
}

func (h *heartbeat) loop(extended func(sent time.Time)) {
	tick := time.NewTicker(h.terms.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-h.quit:
			return
		case <-tick.C:
		}
		sent := time.Now()
		_, err := h.tokens.Extend(context.Background(), h.ref, h.owner, h.terms.Lease, h.terms.Retention)
		switch {
		case err == nil:
			extended(sent)
		case errors.Is(err, redisstore.ErrLost) || errors.Is(err, ErrUnknownToken):
			h.cancel(err)
			return
		default:
			h.tokens.log.Warn("idempotency: heartbeat failed, trying on", "error", err)
		}
	}
}

// stop ends the heartbeat and waits until no extension is under way.
func (h *heartbeat) stop() {
	h.once.Do(func() { close(h.quit) })
	h.done.Wait()
}
