package workerlease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/snowflake"
)

// SlotState is the state of a slot of a ring.
type SlotState string

// The states of a slot.
const (
	SlotStateFree    SlotState = "free"    // it can be granted
	SlotStateHeld    SlotState = "held"    // leased by the Redis server's clock
	SlotStateCooling SlotState = "cooling" // its last lease has ended, and it rests
)

// Slot is one worker id of a ring. One that was never leased has neither fence nor window.
type Slot struct {
	WorkerID  int
	State     SlotState
	Identity  string // as its last holder named itself
	Fence     int64
	NotBefore time.Time // the last window
	NotAfter  time.Time
}

// Ring is a page of a pool's slots at one moment.
type Ring struct {
	Layout     string
	Epoch      time.Time
	Datacenter int
	Bits       int           // width of a worker id: the ring has 2^Bits slots
	TTL        time.Duration // of the pool
	Used       int           // slots that were leased at least once
	Held       int           // slots whose lease is open
	// nothing is granted for that long, since state may have been lost; 0 = no quarantine
	Quarantined time.Duration
	Unasked     bool // that time begins only when somebody asks for a worker id of the pool
	// why, for people; "" without a quarantine
	Reason string
	Now    time.Time // the Redis server's time
	Slots  []Slot
}

// EndsAt is when the pool's layout has no timestamps left; the zero time if that is beyond the year
// 9999.
func (r Ring) EndsAt() time.Time {
	layout, err := snowflake.ParseLayout(r.Layout)
	if err != nil {
		return time.Time{}
	}
	if ends := layout.Lasts(r.Epoch); ends.Year() <= 9999 {
		return ends
	}
	return time.Time{}
}

// Ring reads up to n slots (1 to MaxSlots) from a worker id on. ErrUnknown if the pool has granted
// nothing yet and was not declared; ErrQuarantined, with the time to wait, if it is such a pool and
// waits for its first grant.
func (p *Pools) Ring(ctx context.Context, pool string, from, n int) (Ring, error) {
	if from < 0 || from >= 1<<MaxBits || n < 1 || n > MaxSlots {
		return Ring{}, fmt.Errorf("%w: from %d: 0 to %d; n %d: 1 to %d", ErrInvalid, from, 1<<MaxBits-1, n, MaxSlots)
	}
	ring, err := p.ring(ctx, pool, from, n)
	if err == nil {
		p.list(ctx, pool) // it may have been listed nowhere, or on a server that has lost its list
	}
	return ring, err
}

// Summary is [Pools.Ring] for a list of pools: it reads the first slot alone.
func (p *Pools) Summary(ctx context.Context, pool string) (Ring, error) {
	return p.ring(ctx, pool, 0, 1)
}

func (p *Pools) ring(ctx context.Context, pool string, from, n int) (Ring, error) {
	reply, err := onstore.Run(ctx, p.store, scripts.WorkerGet, p.keys(pool)[:2], from, n)
	if err != nil {
		return Ring{}, err
	}
	if reply.Word() != "ok" {
		return Ring{}, p.refusal(pool, reply)
	}
	var ring Ring
	why := ""
	err = reply.Scan(&ring.Layout, &ring.Epoch, &ring.Datacenter, &ring.Bits, &ring.TTL, &ring.Used, &ring.Quarantined, &ring.Now,
		&why, &ring.Held, &ring.Unasked)
	if err != nil {
		return Ring{}, err
	}
	if ring.Quarantined > 0 {
		ring.Reason = fault.Why(why).Happened(time.Time{}) + fault.Why(why).Avoid()
	}
	for i, record := range reply.Values()[11:] {
		slot, err := readSlot(record, ring.Now, p.config.Cooldown)
		if err != nil {
			return Ring{}, fmt.Errorf("%w: slot %d of the pool: %w", redisstore.ErrUnavailable, from+i, err)
		}
		slot.WorkerID = from + i
		ring.Slots = append(ring.Slots, slot)
	}
	return ring, nil
}

// readSlot reads a record as scripts/lib/slot.lua writes it: nonce not_before not_after fence state
// identity. An empty one is a slot that was never leased.
func readSlot(record string, now time.Time, cooldown time.Duration) (Slot, error) {
	if record == "" {
		return Slot{State: SlotStateFree}, nil
	}
	words := strings.SplitN(record, " ", 6)
	if len(words) != 6 || words[4] != "h" && words[4] != "r" {
		return Slot{}, fmt.Errorf("a record of %d words", len(words))
	}
	var numbers [3]int64
	for i := range numbers {
		n, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			return Slot{}, err
		}
		numbers[i] = n
	}
	slot := Slot{
		State: SlotStateFree, Identity: words[5], Fence: numbers[2],
		NotBefore: time.UnixMilli(numbers[0]).UTC(), NotAfter: time.UnixMilli(numbers[1]).UTC(),
	}
	switch {
	case words[4] == "h" && slot.NotAfter.After(now):
		slot.State = SlotStateHeld
	case cooldown > 0 && slot.NotAfter.Add(cooldown).After(now):
		slot.State = SlotStateCooling
	}
	return slot, nil
}
