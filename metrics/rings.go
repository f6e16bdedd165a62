package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/workerlease"
)

// Rings are looked at seldom, since each server does, and never for long, since the scrape waits.
const (
	ringsEvery = time.Minute
	ringsTime  = 2 * time.Second
	// how long the last look is reported if none succeeds after it.
	ringsKept    = 5 * time.Minute
	mostRings    = 64      // pools of one look
	mostRingRead = 1 << 16 // slots of one look
	ringPageSize = 1024    // slots of one script, which Redis does nothing else meanwhile
)

// occupancy is how many slots of how many rings are in which state.
type occupancy struct {
	slots       map[string]int // by state
	pools       int            // that were looked at
	quarantined int            // of them
	unasked     int            // of them, whose quarantine begins when they are asked
	unseen      int            // pools that were not, or not wholly
	ends        time.Time      // when the first layout of them ends; zero = beyond the year 9999
	at          time.Time
}

// rings remembers the rings as they were at the last look.
type rings struct {
	pools *workerlease.Pools

	mu    sync.Mutex
	tried time.Time
	seen  occupancy
}

// quarantinedSlots is the state of a slot that could be granted, were its pool not in quarantine.
const quarantinedSlots = "quarantined"

func (r *rings) show(registry *Registry) {
	registry.Ask("coatcheck_worker_ring_slots", KindGauge,
		"Worker ids of all pools of the store together, by state: free, held, cooling, or quarantined (free, and not granted since "+
			"the pool's state may have been lost). Looked at once a "+
			"minute at most, up to 64 pools.", []string{"state"}, func(tell Tell) {
			if seen, ok := r.occupied(); ok {
				for state, n := range seen.slots {
					tell(float64(n), state)
				}
			}
		})
	registry.Ask("coatcheck_worker_ring_pools", KindGauge, "Pools of the store, by state: granting, quarantined, unasked (its "+
		"state may have been lost, and nobody has asked for a worker id since), or unseen (there are too many, or they could not be read).",
		[]string{"state"},
		func(tell Tell) {
			if seen, ok := r.occupied(); ok {
				tell(float64(seen.pools-seen.quarantined-seen.unasked), "granting")
				tell(float64(seen.quarantined), "quarantined")
				tell(float64(seen.unasked), "unasked")
				tell(float64(seen.unseen), "unseen")
			}
		})
	registry.Ask("coatcheck_worker_layout_left_seconds", KindGauge,
		"Time until the layout of a pool has no timestamps left, the shortest of all pools; negative after it. Absent where none "+
			"ends before the year 9999.", nil, func(tell Tell) {
			if seen, ok := r.occupied(); ok && !seen.ends.IsZero() {
				tell(time.Until(seen.ends).Seconds())
			}
		})
	registry.Ask("coatcheck_worker_ring_age_seconds", KindGauge, "How long ago the rings were looked at.", nil, func(tell Tell) {
		if seen, ok := r.occupied(); ok {
			tell(time.Since(seen.at).Seconds())
		}
	})
}

// occupied returns the rings' occupancy now or a moment ago; false if it is unknown.
func (r *rings) occupied() (occupancy, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.tried.IsZero() || now.Sub(r.tried) >= ringsEvery {
		r.tried = now
		if seen, err := r.lookAtAll(); err == nil {
			r.seen = seen
		}
	}
	seen := r.seen
	return seen, !seen.at.IsZero() && time.Since(seen.at) < ringsKept
}

// forget makes the next look a new one.
func (r *rings) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = time.Time{}
}

func (r *rings) lookAtAll() (occupancy, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ringsTime)
	defer cancel()
	names, _, err := r.pools.List(ctx, "", "", mostRings+1)
	if err != nil {
		return occupancy{}, err
	}
	seen := occupancy{slots: map[string]int{
		string(workerlease.SlotStateFree): 0, string(workerlease.SlotStateHeld): 0,
		string(workerlease.SlotStateCooling): 0, quarantinedSlots: 0,
	}}
	if len(names) > mostRings {
		seen.unseen, names = 1, names[:mostRings]
	}
	left := mostRingRead
	for _, pool := range names {
		left -= r.look(ctx, pool, &seen, left)
	}
	seen.at = time.Now()
	return seen, nil
}

// look adds a pool to the occupancy, and returns how many slots it has read. It ends at the
// last slot that was ever used: all after it are free.
func (r *rings) look(ctx context.Context, pool string, seen *occupancy, left int) (read int) {
	states, used := map[string]int{}, 0
	for {
		page, err := r.pools.Ring(ctx, pool, read, ringPageSize)
		if err != nil || read+len(page.Slots) > left {
			seen.unseen++
			return read
		}
		if ends := page.EndsAt(); !ends.IsZero() && (seen.ends.IsZero() || ends.Before(seen.ends)) {
			seen.ends = ends
		}
		free := string(workerlease.SlotStateFree)
		if page.Quarantined > 0 {
			free = quarantinedSlots
		}
		for _, slot := range page.Slots {
			if !slot.NotAfter.IsZero() {
				used++
			}
			if slot.State == workerlease.SlotStateFree {
				slot.State = workerlease.SlotState(free)
			}
			states[string(slot.State)]++
		}
		read += len(page.Slots)
		if used < page.Used && len(page.Slots) == ringPageSize {
			continue
		}
		states[free] += 1<<page.Bits - read
		for state, n := range states {
			seen.slots[state] += n
		}
		seen.pools++
		switch {
		case page.Unasked:
			seen.unasked++
		case page.Quarantined > 0:
			seen.quarantined++
		}
		return read
	}
}
