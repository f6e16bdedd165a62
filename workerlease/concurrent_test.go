package workerlease_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p pools) manyAtOnce(t *testing.T) {
	const holders = 64
	leases := make([]workerlease.Lease, holders)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			lease, err := p.Acquire(t.Context(), "many", of(6))
			expect.Error(t, "Acquire many", err, nil)
			leases[i] = lease
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	ids, fences, tokens := map[int]bool{}, map[int64]bool{}, map[string]bool{}
	for _, lease := range leases {
		ids[lease.WorkerID], fences[lease.Fence], tokens[lease.Token] = true, true, true
		p.wantOpen(t, lease)
	}
	if len(ids) != holders || len(fences) != holders || len(tokens) != holders {
		t.Errorf("%d leases have %d worker ids, %d fences, %d tokens", holders, len(ids), len(fences), len(tokens))
	}
	if _, err := p.Acquire(t.Context(), "many", of(6)); !errors.Is(err, workerlease.ErrExhausted) {
		t.Errorf("one more than the ring has: %v", err)
	}
}

// More holders than slots take, renew and give back for a while. The holder of an id notes it; a
// note that is there already is another holder.
func (p pools) churn(t *testing.T) {
	const holders, rounds, slots = 12, 25, 8
	var holder [slots]atomic.Int64
	var granted, full atomic.Int64
	var wg sync.WaitGroup
	for me := range int64(holders) {
		wg.Go(func() {
			for range rounds {
				lease, err := p.Acquire(t.Context(), "churn", of(3))
				if errors.Is(err, workerlease.ErrExhausted) {
					full.Add(1)
					continue
				}
				if err != nil {
					t.Errorf("Acquire beside others: %v", err)
					return
				}
				granted.Add(1)
				if !holder[lease.WorkerID].CompareAndSwap(0, me+1) {
					t.Errorf("worker id %d was granted to %d while %d holds it", lease.WorkerID, me+1, holder[lease.WorkerID].Load())
				}
				p.wantOpen(t, lease)
				holder[lease.WorkerID].Store(0)
				if err := p.Release(t.Context(), "churn", lease.WorkerID, lease.Token, lease.Now); err != nil {
					t.Errorf("release of an open lease: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if granted.Load() < slots || granted.Load()+full.Load() != holders*rounds {
		t.Errorf("%d grants, %d refusals", granted.Load(), full.Load())
	}
}
