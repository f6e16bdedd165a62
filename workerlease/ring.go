package workerlease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// SlotState is what a slot of a ring is doing.
type SlotState string

// The states of a slot.
const (
	Free SlotState = "free" // its last lease has ended
	Held SlotState = "held" // leased by the Redis server's clock
)

// Slot is one worker id of a ring that was leased at least once.
type Slot struct {
	WorkerID  int
	State     SlotState
	Identity  string // as its last holder named itself
	Fence     int64
	NotBefore time.Time // the last window
	NotAfter  time.Time
}

// Ring is a page of a pool as it is at one moment.
type Ring struct {
	Layout string
	Epoch  time.Time
	Bits   int           // width of a worker id: the ring has 2^Bits slots
	TTL    time.Duration // of the last grant
	Used   int           // slots that were leased at least once: worker ids 0 to Used-1
	Now    time.Time     // the Redis server's time
	Slots  []Slot
}

// Ring reads up to n slots (1 to MaxSlots) from a worker id on. ErrUnknown if the pool has granted nothing yet.
func (p *Pools) Ring(ctx context.Context, pool string, from, n int) (Ring, error) {
	if from < 0 || from >= 1<<MaxBits || n < 1 || n > MaxSlots {
		return Ring{}, fmt.Errorf("%w: from %d: 0 to %d; n %d: 1 to %d", ErrRequest, from, 1<<MaxBits-1, n, MaxSlots)
	}
	reply, err := p.store.Run(ctx, scripts.WorkerGet, p.keys(pool)[:1], from, n)
	if err != nil {
		return Ring{}, err
	}
	switch reply.Word() {
	case "ok":
	case "unknown":
		return Ring{}, ErrUnknown
	default:
		return Ring{}, reply.Unexpected()
	}
	var ring Ring
	if err := reply.Scan(&ring.Layout, &ring.Epoch, &ring.Bits, &ring.TTL, &ring.Used, &ring.Now); err != nil {
		return Ring{}, err
	}
	for i, record := range reply.Values()[6:] {
		slot, err := readSlot(record, ring.Now)
		if err != nil {
			return Ring{}, fmt.Errorf("%w: slot %d of the pool: %w", redisstore.ErrUnavailable, from+i, err)
		}
		slot.WorkerID = from + i
		ring.Slots = append(ring.Slots, slot)
	}
	return ring, nil
}

// readSlot reads a record as scripts/lib/slot.lua writes it: nonce not_before not_after fence state ttl identity.
func readSlot(record string, now time.Time) (Slot, error) {
	words := strings.SplitN(record, " ", 7)
	if len(words) != 7 {
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
		State: Free, Identity: words[6], Fence: numbers[2],
		NotBefore: time.UnixMilli(numbers[0]).UTC(), NotAfter: time.UnixMilli(numbers[1]).UTC(),
	}
	if slot.NotAfter.After(now) {
		slot.State = Held
	}
	return slot, nil
}
