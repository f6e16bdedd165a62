package keepalive

import (
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// Claim is the claim that a [Heartbeat] extends.
type Claim struct {
	Lease  time.Duration
	Extend func() error         // asks for one more lease
	Lost   func(err error) bool // reports whether its error says that the claim is gone
	Failed func(err error)      // is told of its other errors
	End    func(cause error)    // is told that the claim is lost: Extend's error, or Late
	Late   error                // why it ends when its lease can have ended; nil = it does not
	Wall   func() time.Time     // nil = the wall clock
}

// Heartbeat extends the claim of work that is under way every third of its lease, until it is lost
// or Stop is called. A [Keeper] is for a holder that must stop when its lease can have ended; a
// heartbeat goes on without an answer, and ends work by the clock only if Late is set, then at the
// very end of the lease, by monotonic or wall time, whichever is later. Between two beats it is
// timers and no goroutine.
type Heartbeat struct {
	claim    Claim
	deadline *time.Timer // nil = the clock does not end it

	mu       sync.Mutex
	sent     time.Time // before the last confirmed request was sent
	sentWall time.Time
	next     *time.Timer
	stopped  bool
	beating  sync.WaitGroup
}

// Beat starts the heartbeat of a claim, whose lease counts from sent, before it was asked for.
func Beat(sent time.Time, claim Claim) *Heartbeat {
	if claim.Wall == nil {
		claim.Wall = wallClock
	}
	h := &Heartbeat{claim: claim, sent: sent, sentWall: sent.Round(0)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if claim.Late != nil {
		h.deadline = time.AfterFunc(min(h.leftLocked(), look), h.expire)
	}
	h.next = time.AfterFunc(claim.Lease/3, h.beat)
	return h
}

func (h *Heartbeat) leftLocked() time.Duration {
	return h.claim.Lease - max(time.Since(h.sent), h.claim.Wall().Sub(h.sentWall))
}

// expire ends the claim when its lease can have ended, and else looks again.
func (h *Heartbeat) expire() {
	step.At("heartbeat: the lease may be over")
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.leftLocked(); left > 0 && !h.stopped {
		h.deadline.Reset(min(left, look))
	} else if !h.stopped {
		h.claim.End(h.claim.Late)
	}
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
	step.At("heartbeat: is about to extend")
	sent, wall := time.Now(), h.claim.Wall()
	err := h.claim.Extend()
	step.At("heartbeat: has an answer")
	switch {
	case err == nil:
	case h.claim.Lost(err):
		h.claim.End(err)
		return
	default:
		h.claim.Failed(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.sent, h.sentWall = sent, wall
	}
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
	step.At("heartbeat: stopped")
	h.beating.Wait()
	if h.deadline != nil {
		h.deadline.Stop()
	}
}
