package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/workerlease"
)

// ReadyWhen is what makes /readyz say that the service is ready, besides that it is not stopping.
type ReadyWhen string

const (
	// ReadyWithIDs means that the store works, that the layout of no configured pool, IDPool and
	// StampPools, has ended, and that there is none of which another process can stamp ids and this
	// one cannot. So a rolling deploy
	// does not stop the processes that can stamp before the new ones can. Where no process can, as
	// in the quarantine of a pool that is new, each is as good as the others, and is ready.
	ReadyWithIDs ReadyWhen = "ids"
	// ReadyWithStore means that the store works.
	ReadyWithStore ReadyWhen = "store"
)

// layoutEnded is the reason why a process is not ready whose pool can stamp nothing for good.
const layoutEnded = "the layout of a configured pool has no timestamps left"

// cannotStamp is the reason why a process is not ready that cannot stamp where others can.
const cannotStamp = "no worker id of a configured pool, of which another process has one"

const (
	keepOutdone     = time.Second     // how long a look at the rings stands
	outdonePatience = 5 * time.Second // how long it may take
)

// outdone caches the last look at the worker ids of other processes.
type outdone struct {
	mu    sync.Mutex
	until time.Time // it stands until then
	last  string    // the reason, or ""
}

// withoutIDs is the reason why this process is not ready, for the sake of a configured pool; "" =
// there is none. However often it is asked, it looks once a second, at the rings only while a
// worker id is missing.
func (h *probes) withoutIDs(ctx context.Context) (reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outdonePatience)
	defer cancel()
	h.outdone.mu.Lock()
	defer h.outdone.mu.Unlock()
	if time.Now().Before(h.outdone.until) {
		return h.outdone.last
	}
	pool, reason := h.missing(ctx)
	switch {
	case reason != "" && reason != h.outdone.last:
		h.log.WarnContext(ctx, "not ready: "+reason, "pool", pool.Pool, "error", pool.Err)
	case reason == "" && h.outdone.last != "":
		h.log.InfoContext(ctx, "ready again: this process has a worker id of its pools, or no process has")
	}
	h.outdone.last, h.outdone.until = reason, time.Now().Add(keepOutdone)
	return reason
}

// missing finds a pool for which this process is not ready.
func (h *probes) missing(ctx context.Context) (pool stamper.Status, reason string) {
	for _, pool := range h.stamper.Kept(ctx) {
		switch {
		case pool.Held:
		case errors.Is(pool.Err, workerlease.ErrEnded):
			return pool, layoutEnded
		case h.heldElsewhere(ctx, pool.Pool):
			return pool, cannotStamp
		}
	}
	return pool, ""
}

// heldElsewhere reports whether a worker id of a pool is leased to another process. One that is
// leased under this server's identity counts as its own, from before a restart.
func (h *probes) heldElsewhere(ctx context.Context, pool string) bool {
	for from, seen := 0, 0; ; {
		ring, err := h.pools.Ring(ctx, pool, from, workerlease.MaxSlots)
		if err != nil {
			return false // a pool that is not there, or no ring
		}
		for _, slot := range ring.Slots {
			if slot.Fence > 0 {
				seen++
			}
			if slot.State == workerlease.SlotStateHeld && (slot.Identity == "" || slot.Identity != h.identity) {
				return true
			}
		}
		if from += len(ring.Slots); len(ring.Slots) == 0 || seen >= ring.Used {
			return false
		}
	}
}
