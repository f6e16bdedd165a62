package idempotency

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Attempt is what a guarded handler can know of its claim. It is safe for concurrent use.
type Attempt struct {
	// larger than that of every earlier attempt of this token; below 2^53. Send it to a resource
	// that must refuse an older attempt
	Fence int64
	// counts from 1; more than 1 only under Takeover, or of an issued token after an attempt that
	// never began
	Number int
	// 32 characters that name the operation: the same for all attempts of one token or key,
	// different for any other. Fit for a unique column
	Operation string
	notBegun  atomic.Bool
	inDoubt   atomic.Bool
}

// NotBegun states that the operation provably had no effect, such as a request that failed
// validation: the answer is sent but not recorded, and the same token may be used again, with
// another payload too. A handler that has had any effect outside must not call it.
func (a *Attempt) NotBegun() { a.notBegun.Store(true) }

// InDoubt states that the operation may or may not have had its effect, such as a call to another
// service that timed out: the answer is sent but not recorded, and the token is in doubt at once.
// Under Hold later requests get "outcome unknown"; under Takeover the next one may run. It wins
// over NotBegun.
func (a *Attempt) InDoubt() { a.inDoubt.Store(true) }

type contextKey struct{}

// FromContext returns the attempt of a guarded handler; ok is false outside of one.
func FromContext(ctx context.Context) (attempt *Attempt, ok bool) {
	attempt, ok = ctx.Value(contextKey{}).(*Attempt)
	return attempt, ok
}

// heartbeat keeps a claim alive while its handler runs. Between two beats it is a timer and no
// goroutine.
type heartbeat struct {
	tokens   *Tokens
	detached context.Context // of the request, without its end
	key      OperationKey
	owner    string
	options  ClaimOptions
	cancel   context.CancelCauseFunc // ends the handler's context when the claim is lost
	trust    *time.Timer             // ends it when the lease can have ended; nil under Hold

	mu      sync.Mutex
	next    *time.Timer
	stopped bool
	beating sync.WaitGroup
}

// beat starts the heartbeat: the lease is extended every third of it. claimed is the time before
// the claim was sent: from then the process trusts its own claim for one lease. Under Takeover the
// handler's context ends by a timer of its own when the lease can have ended, whether or not Redis
// answers: from then on another attempt may run.
func (t *Tokens) beat(detached context.Context, key OperationKey, owner string, options ClaimOptions, claimed time.Time, cancel context.CancelCauseFunc) *heartbeat {
	h := &heartbeat{tokens: t, detached: detached, key: key, owner: owner, options: options, cancel: cancel}
	if options.Policy == Takeover {
		h.trust = time.AfterFunc(time.Until(claimed.Add(options.Lease)), func() { cancel(ErrSuperseded) })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = time.AfterFunc(options.Lease/3, h.beatOnce)
	return h
}

// beatOnce extends the lease, and sets the next beat unless the claim is lost or the heartbeat has
// been stopped.
func (h *heartbeat) beatOnce() {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return
	}
	h.beating.Add(1)
	h.mu.Unlock()
	defer h.beating.Done()
	began := time.Now()
	if !h.extend() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.next.Reset(max(h.options.Lease/3-time.Since(began), 0))
	}
}

// extend reports whether the claim may still be held.
func (h *heartbeat) extend() bool {
	sent := time.Now()
	_, err := h.tokens.Extend(h.detached, h.key, h.owner, h.options.Lease, h.options.Retention)
	switch {
	case err == nil && h.trust != nil:
		h.trust.Reset(time.Until(sent.Add(h.options.Lease)))
	case errors.Is(err, redisstore.ErrLost) || errors.Is(err, ErrUnknownToken):
		h.cancel(err)
		return false
	case err != nil:
		h.tokens.log.WarnContext(h.detached, "idempotency: heartbeat failed, trying on", "error", err)
	}
	return true
}

// stop ends the heartbeat and waits until no extension is under way.
func (h *heartbeat) stop() {
	h.mu.Lock()
	h.stopped = true
	h.next.Stop()
	h.mu.Unlock()
	h.beating.Wait()
	if h.trust != nil {
		h.trust.Stop()
	}
}
