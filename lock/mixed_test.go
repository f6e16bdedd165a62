package lock

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// mixed are requests that may meet at one lock.
var mixed = []Request{{}, {}, {WholeTTL: true}, {Mode: ModeShared}, {Mode: ModeShared}, {Permits: 3}, {Permits: 3, Take: 2}}

// occupancy is how a lock is held, as its holders believe.
type occupancy struct {
	mu     sync.Mutex
	held   map[Mode]int // holders, or permits
	fence  int64        // the largest so far
	faults []string
}

func (o *occupancy) faultf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

// count adds a holder, or with sign -1 takes it away.
func (o *occupancy) count(lock *Lock, request Request, sign int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[request.Mode] += sign * request.Take
	others := len(o.held)
	for _, n := range o.held {
		if n == 0 {
			others--
		}
	}
	if others > 1 || o.held[ModeExclusive] > 1 || o.held[ModePermits] > 3 {
		o.faults = append(o.faults, fmt.Sprintf("held at once: %v", o.held))
	}
	if sign > 0 && request.Mode == ModeExclusive && lock.Fence() <= o.fence {
		o.faults = append(o.faults, fmt.Sprintf("fence %d after %d", lock.Fence(), o.fence))
	}
	o.fence = max(o.fence, lock.Fence())
}

// use asks for the lock once, patiently or not, and gives it back or dies with it.
func (o *occupancy) use(t *testing.T, draw *rand.Rand, locks *Locks) {
	millis := func(n int) time.Duration { return time.Duration(draw.IntN(n)) * time.Millisecond }
	time.Sleep(millis(60))
	request := mixed[draw.IntN(len(mixed))].withDefaults(locks.config)
	request.Token, request.TTL, request.Wait = "", 300*time.Millisecond+2*millis(1000), 2*time.Minute
	patient, dies := draw.IntN(4) > 0, draw.IntN(15) == 0
	if !patient {
		request.Wait = time.Millisecond + millis(1500)
	}
	lock, err := locks.Acquire(t.Context(), "mixed", request)
	if err != nil {
		if patient {
			o.faultf("a wait for %+v: %v", request, err)
		}
		return
	}
	o.count(lock, request, 1)
	select {
	case <-time.After(millis(200)):
	case <-lock.Done():
		o.faultf("%+v: %v", request, lock.Err())
	}
	o.count(lock, request, -1)
	if dies {
		lock.keeper.Stop()
		lock.listing.stop()
		return
	}
	if err := lock.Release(t.Context()); err != nil {
		o.faultf("release of %+v: %v", request, err)
	}
}

// Processes with different claim windows ask for one lock in all modes. Some give up, and some die
// with it. No two hold that exclude each other, and every patient one is served.
func TestMixedRequestsExcludeEachOtherAndAreServed(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			var processes []*Locks
			for _, window := range []time.Duration{MinTTL, defaultWindow, 5 * time.Second} {
				processes = append(processes, open(t, store, Config{Window: window}))
			}
			o := &occupancy{held: map[Mode]int{}}
			var all sync.WaitGroup
			for i := range uint64(12) {
				draw := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					for range 6 {
						o.use(t, draw, processes[draw.IntN(len(processes))])
					}
				})
			}
			all.Wait()
			if len(o.faults) > 0 {
				t.Fatalf("seed %d: %q", seed, o.faults)
			}
		})
	}
}

// A waiter that has a longer or a shorter claim window than the process which gives the lock back
// keeps its turn: neither takes the other's for silent.
func TestWaiterKeepsItsTurnWhateverTheWindows(t *testing.T) {
	for _, windows := range [][2]time.Duration{{time.Second, time.Minute}, {time.Minute, time.Second}} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			holds, waits := open(t, store, Config{Window: windows[0]}), open(t, store, Config{Window: windows[1]})
			held := must(t, holds, "turn", Request{})
			first := settle(t, wait(t, waits, "turn", Request{}))
			time.Sleep(20 * time.Second)
			second := settle(t, wait(t, holds, "turn", Request{}))
			began := time.Now()
			release(t, held)
			synctest.Wait()
			if len(second.result) > 0 {
				release(t, second.granted(t))
			}
			got := first.granted(t)
			if late := time.Since(began); late > 0 {
				t.Errorf("windows %v: the first waiter has the lock after %v, want 0s", windows, late)
			}
			release(t, got)
			release(t, second.granted(t))
		})
	}
}
