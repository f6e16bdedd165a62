//go:build check

package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (d *diary) note(one tenure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenures = append(d.tenures, one)
}

func (d *diary) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tenures)
}

// keep takes the lock again and again, and notes what it believes.
func (d *diary) keep(ctx context.Context, locks *QuorumLocks, ttl time.Duration) error {
	for ctx.Err() == nil {
		held, err := locks.Acquire(ctx, "history", Request{TTL: ttl})
		if err != nil {
			if errors.Is(err, ErrHeld) || errors.Is(err, ErrInDoubt) || errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, redisstore.ErrUnknownOutcome) || ctx.Err() != nil {
				continue
			}
			return err
		}
		one := tenure{fence: held.Fence(), got: time.Now()}
		one.last = one.got
		for until := one.got.Add(rand.N(ttl / 4)); time.Now().Before(until); time.Sleep(time.Millisecond) {
			looked := time.Now()
			if held.Err() != nil {
				break
			}
			one.last = looked
		}
		if looked := time.Now(); held.Err() == nil {
			one.last = looked // it believes until it gives back
		}
		d.note(one)
		_ = held.Release(ctx) // servers may be away
	}
	return nil
}

// Servers are killed and come back empty, as many as drawn, or stand still; holders believe to hold
// one at a time, with rising fences. The recorded history is checked.
func TestHistoryOfAQuorumUnderFaultsIsInOrder(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	field := startField(t, 5)
	config := Config{LongestTTL: ttl, Skew: 50 * time.Millisecond, Window: MinTTL}
	d := &diary{}
	ctx, cancel := context.WithCancel(t.Context())
	var holders sync.WaitGroup
	defer holders.Wait()
	defer cancel()
	field.ready(t, field.near(t, config))
	for i := range 6 {
		locks := field.near(t, config)
		if i%2 == 0 {
			locks = field.far(t, config)
		}
		holders.Go(func() {
			if err := d.keep(ctx, locks, ttl); err != nil {
				t.Error(err)
			}
		})
	}
	for round := range 8 {
		if round > 0 {
			harm(field, rand.Perm(5)[:1+rand.IntN(3)])
		}
		noted := d.len()
		expect.Eventually(t, "some have held since the last fault", func() bool { return d.len() >= noted+5 })
	}
	cancel()
	holders.Wait()
	if found := d.faults(); len(found) > 0 {
		t.Errorf("%d tenures: %q", d.len(), found)
	}
	t.Logf("%d tenures", d.len())
}

// harm restarts servers empty, or has them stand still for a while that may be longer than a lease.
func harm(f *field, victims []int) {
	kill := rand.IntN(2) == 0
	for _, i := range victims {
		if kill {
			f.servers[i].RestartEmpty()
		} else {
			f.servers[i].Pause()
		}
	}
	if kill {
		return
	}
	time.Sleep(rand.N(1500 * time.Millisecond))
	for _, i := range victims {
		f.servers[i].Resume()
	}
}
