package keepalive

import (
	"sync"
	"time"
)

// Claim is the claim that a [Heartbeat] extends.
type Claim struct {
	Lease  time.Duration
	Extend func() error         // asks for one more lease
	Lost   func(err error) bool // reports whether its error says that the claim is gone
	Failed func(err error)      // is told of its other errors
	End    func(cause error)    // is told that the claim is lost: Extend's error, or Late
	Late   error                // why it ends when its lease can have ended; nil = it does not
}

// Heartbeat extends the claim of work that is under way every third of its lease, until it is lost
// or Stop is called. A [Keeper] is for a holder that must stop when its lease can have ended; a
// heartbeat goes on without an answer, and ends work by the clock only if Late is set, then at the
// very end of the lease. Between two beats it is a timer and no goroutine.
type Heartbeat struct {
	claim    Claim
	deadline *time.Timer // nil = the clock does not end it

	mu      sync.Mutex
	next    *time.Timer
	stopped bool
	beating sync.WaitGroup
}

// Beat starts the heartbeat of a claim, whose lease counts from sent, before it was asked for.
func Beat(sent time.Time, claim Claim) *Heartbeat {
	h := &Heartbeat{claim: claim}
	if claim.Late != nil {
		h.deadline = time.AfterFunc(time.Until(sent.Add(claim.Lease)), func() { claim.End(claim.Late) })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = time.AfterFunc(claim.Lease/3, h.beat)
	return h
}

// beat extends the claim once, and sets the next beat unless the claim is lost or stopped.
func (h *Heartbeat) beat() {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return
	}
	h.beating.Add(1)
	h.mu.Unlock()
	defer h.beating.Done()
	sent := time.Now()
	err := h.claim.Extend()
	switch {
	case err == nil && h.deadline != nil:
		h.deadline.Reset(time.Until(sent.Add(h.claim.Lease)))
	case err != nil && h.claim.Lost(err):
		h.claim.End(err)
		return
	case err != nil:
		h.claim.Failed(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.next.Reset(max(h.claim.Lease/3-time.Since(sent), 0))
	}
}

// Stop ends the heartbeat and waits until no extension is under way.
func (h *Heartbeat) Stop() {
	h.mu.Lock()
	h.stopped = true
	h.next.Stop()
	h.mu.Unlock()
	h.beating.Wait()
	if h.deadline != nil {
		h.deadline.Stop()
	}
}
