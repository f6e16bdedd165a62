package workerlease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// short asks for leases that a test can wait for on a real server.
func short(bits int) workerlease.Request {
	request := of(bits)
	request.TTL = 5 * time.Second
	return request
}

// wantSame checks that holders of the pool p hold what they held, and that no other is granted
// any of it.
func (p pools) wantSame(t *testing.T, request workerlease.Request, holders []*workerlease.Holder, ids []int) {
	t.Helper()
	held := map[int]bool{}
	for i, h := range holders {
		if id := idOf(t, h); id != ids[i] {
			t.Errorf("holder %d has %d, and had %d", i, id, ids[i])
		}
		held[ids[i]] = true
	}
	for range 1<<snowflake.MustLayout(request.Shape.Layout).Worker - len(holders) {
		lease, err := p.Acquire(t.Context(), "p", request)
		if err != nil || held[lease.WorkerID] {
			t.Errorf("%+v %v, while %v are held", lease, err, ids)
		}
		held[lease.WorkerID] = true
	}
	if _, err := p.Acquire(t.Context(), "p", request); !errors.Is(err, workerlease.ErrExhausted) {
		t.Errorf("one more than there are: %v", err)
	}
}

// several hold ids of the pool p.
func (p pools) several(t *testing.T, request workerlease.Request, n int) (holders []*workerlease.Holder, ids []int) {
	t.Helper()
	for range n {
		h := p.hold(t, "p", request, workerlease.HoldOptions{})
		holders, ids = append(holders, h), append(ids, idOf(t, h))
	}
	return holders, ids
}

// All of a pool is lost while its ids are held. Their holders go on, under both settings, and write
// down anew what they hold.
func TestHoldersOutliveTheLossOfTheirPool(t *testing.T) {
	for _, setting := range []workerlease.NewPools{workerlease.NewPoolsWait, workerlease.NewPoolsTrust} {
		for name, lose := range map[string]func(t *testing.T, p pools){
			"all":      func(t *testing.T, p pools) { p.forget(t, "p") },
			"the pool": func(t *testing.T, p pools) { p.lose(t, onstore.Key(p.store, "worker", "p")) },
			"what is beside": func(t *testing.T, p pools) {
				p.lose(t, onstore.Key(p.store, "worker", "p", "ends"), onstore.Key(p.store, "worker", "p", "names"))
			},
			"a record":    func(t *testing.T, p pools) { p.strike(t, "1") },
			"two records": func(t *testing.T, p pools) { p.strike(t, "1"); p.strike(t, "2") },
		} {
			t.Run(string(setting)+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
					p := pools{workerlease.New(store, workerlease.Config{NewPools: setting}), store}
					expect.NoError(t, "Create p", p.Create(t.Context(), "p", of(3).Shape, 30*time.Second))
					holders, ids := p.several(t, of(3), 4)
					time.Sleep(20 * time.Second)
					lose(t, p)
					time.Sleep(20 * time.Second) // all have renewed
					_, err := p.Acquire(t.Context(), "p", of(3))
					if waits := name != "what is beside"; waits != errors.Is(err, workerlease.ErrQuarantined) || !waits && err != nil {
						t.Errorf("nothing is granted until all have had time to tell: %v", err)
					}
					time.Sleep(time.Minute)
					p.wantSame(t, of(3), holders, ids)
				})
			})
		}
	}
}

// A holder that could not renew before the quarantine's end has lost its id.
func TestHolderThatDoesNotTellInTimeLosesItsID(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		silent := p.acquire(t, "p", of(1))
		h := p.hold(t, "p", of(1), workerlease.HoldOptions{Once: true})
		p.strike(t, "0")
		var next workerlease.Lease
		for end := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			var err error
			if next, err = p.Acquire(t.Context(), "p", of(1)); err == nil {
				if time.Since(end) < 31*time.Second {
					t.Errorf("granted %v after the loss", time.Since(end))
				}
				break
			}
		}
		if next.WorkerID != 0 || next.NotBefore.Before(silent.NotAfter) || idOf(t, h) != 1 {
			t.Errorf("%+v after %+v, and %d", next, silent, idOf(t, h))
		}
		_, err := p.Renew(t.Context(), silent, 0)
		wantIs(t, err, workerlease.ErrLost, redisstore.ErrLost)
		p.wantOpen(t, next)
	})
}

func TestFlushAllUnderHolders(t *testing.T) {
	t.Parallel()
	for _, setting := range []workerlease.NewPools{workerlease.NewPoolsWait, workerlease.NewPoolsTrust} {
		t.Run(string(setting), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			store := storetest.Open(t, redisstore.Config{URL: server.URL()})
			p := pools{workerlease.New(store, workerlease.Config{NewPools: setting, Skew: 100 * time.Millisecond, LongestTTL: short(2).TTL}), store}
			expect.NoError(t, "Create p", p.Create(t.Context(), "p", short(2).Shape, short(2).TTL))
			holders, ids := p.several(t, short(2), 2)
			expect.NoError(t, "FlushAll", server.Client().FlushAll(t.Context()).Err())
			expect.Eventually(t, "both are written down anew", func() bool {
				ring, err := p.Ring(t.Context(), "p", 0, 2)
				return err == nil && ring.Used == 2 && ring.Quarantined == 0
			})
			p.wantSame(t, short(2), holders, ids)
		})
	}
}

// A server that starts empty lives again, as another incarnation. Holders that reach it in time
// keep their ids.
func TestServerThatStartsEmptyUnderHolders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	p := pools{workerlease.New(store, workerlease.Config{Skew: 100 * time.Millisecond, LongestTTL: 15 * time.Second}), store}
	request := of(2)
	request.TTL = 15 * time.Second
	expect.NoError(t, "Create p", p.Create(t.Context(), "p", request.Shape, request.TTL))
	holders, ids := p.several(t, request, 2)
	server.RestartEmpty()
	var early []workerlease.Lease
	expect.Eventually(t, "grants go on", func() bool {
		lease, err := p.Acquire(t.Context(), "p", request)
		if err == nil {
			early = append(early, lease)
		}
		return err == nil
	})
	if id := early[0].WorkerID; id == ids[0] || id == ids[1] {
		t.Errorf("%d was granted while it is held", id)
	}
	p.wantOpen(t, early[0])
	for i, h := range holders {
		if id := idOf(t, h); id != ids[i] {
			t.Errorf("holder %d has %d, and had %d", i, id, ids[i])
		}
	}
}

// A reply that is lost costs no slot.
func TestLostRepliesToAcquireCostNoSlots(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	direct := pools{workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), store}
	direct.acquire(t, "p", of(3))

	lost := newFault(t, server)
	through := storetest.Open(t, redisstore.Config{URL: lost.URL()})
	p := pools{workerlease.New(through, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), through}
	lost.set(redistest.CutAfter, 5)
	h := p.hold(t, "p", of(3), workerlease.HoldOptions{Wait: patience})
	if id := idOf(t, h); id != 1 {
		t.Errorf("it holds %d", id)
	}
	ring, err := direct.Ring(t.Context(), "p", 0, 8)
	if err != nil || ring.Used != 2 {
		t.Errorf("%d slots are used, %v", ring.Used, err)
	}
	if hit := lost.left.Load(); hit > 0 {
		t.Errorf("%d replies were not lost", hit)
	}
}

// The link goes black: requests leave and nothing comes back, also on new connections. The holder's
// context ends before any other process can have its id.
func TestBlackHoledHolderEndsBeforeItsWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := newFault(t, server)
	far := storetest.Open(t, redisstore.Config{URL: link.URL()})
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	config := workerlease.Config{NewPools: workerlease.NewPoolsTrust}
	p, other := pools{workerlease.New(far, config), far}, pools{workerlease.New(store, config), store}
	// with time to look, on a busy machine, between the holder's end and its window's
	h := p.hold(t, "p", short(1), workerlease.HoldOptions{Once: true, Margin: 2 * time.Second})
	other.hold(t, "p", short(1), workerlease.HoldOptions{}) // the other id
	before, err := h.Current()
	expect.NoError(t, "Current", err)
	expect.Eventually(t, "it was renewed", func() bool { lease, err := h.Current(); return err == nil && lease.NotAfter.After(before.NotAfter) })
	link.set(redistest.Swallow, 1<<30)
	link.SetDeaf(true)

	ended := make(chan error, 1)
	ctx := h.Context()
	go func() {
		<-ctx.Done()
		ring, err := other.Ring(context.WithoutCancel(ctx), "p", before.WorkerID, 1)
		// by the server's clock
		if err == nil && (ring.Slots[0].State != workerlease.SlotStateHeld || ring.Slots[0].Fence != before.Fence) {
			err = errors.New("the window has ended before the context")
		}
		ended <- err
	}()
	next := other.hold(t, "p", short(1), workerlease.HoldOptions{Wait: patience})
	if err := <-ended; err != nil {
		t.Errorf("the wait for the holder's end: %v", err)
	}
	if cause := context.Cause(ctx); cause == nil {
		t.Error("another holds the id, and the context has not ended")
	}
	if _, err := h.Lease(); err == nil {
		t.Error("it can be stamped with")
	}
	if id := idOf(t, next); id != before.WorkerID {
		t.Errorf("another holds %d", id)
	}
}
