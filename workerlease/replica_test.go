package workerlease_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// replicated are the pools of a master with two replicas, which both must acknowledge.
func replicated(t *testing.T) (pools, *redistest.SentinelSet) {
	t.Helper()
	set := redistest.StartSentinel(t, 2)
	store := storetest.Open(t, redisstore.Config{URL: set.URL(), Ack: redisstore.AckAll, AckTimeout: 200 * time.Millisecond, Timeout: 5 * time.Second})
	p := pools{workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Skew: 100 * time.Millisecond}), store}
	expect.Eventually(t, "both replicas acknowledge", func() bool { _, err := p.Acquire(t.Context(), "first", of(10)); return err == nil })
	return p, set
}

// wantShortfall checks that an error says that the write was not acknowledged by all.
func wantShortfall(t *testing.T, err error) {
	t.Helper()
	var short *redisstore.ShortfallError
	if !errors.Is(err, redisstore.ErrUnknownOutcome) || !errors.As(err, &short) || short.Want != 2 || short.Got != 1 {
		t.Errorf("got %v, want an acknowledgement by 1 of 2", err)
	}
}

func TestGrantThatIsNotAcknowledgedIsNotUsed(t *testing.T) {
	t.Parallel()
	p, set := replicated(t)
	p.acquire(t, "p", of(3))
	replica := set.Replicas()[0]
	replica.Pause()
	_, err := p.Acquire(t.Context(), "p", of(3))
	wantShortfall(t, err)
	_, err = p.Hold(t.Context(), "p", of(3), workerlease.HoldOptions{Wait: -1})
	wantShortfall(t, err)
	ring, err := p.Ring(t.Context(), "p", 0, 8)
	if err != nil || ring.Used != 2 {
		t.Errorf("attempts cost one slot in all: %d are used, %v", ring.Used, err)
	}

	// Asked for again under the same name it is the same grant, which is written again for the
	// replicas to acknowledge.
	const nonce = "AAAAAAAAAAAAAAAAAAAAAA"
	for range 3 {
		_, err := p.AcquireAs(t.Context(), "p", of(3), nonce)
		wantShortfall(t, err)
	}
	waited := make(chan struct{})
	once := false
	held := make(chan *workerlease.Holder, 1)
	go func() {
		defer close(held)
		h, err := p.Hold(t.Context(), "p", of(3), workerlease.HoldOptions{Wait: patience, Observe: func(e holder.Event) {
			if !once && errors.Is(e.Err, redisstore.ErrUnknownOutcome) {
				once = true
				close(waited)
			}
		}})
		if err != nil {
			t.Errorf("Hold: %v", err)
			return
		}
		held <- h
	}()
	<-waited
	replica.Resume()
	h, ok := <-held
	if !ok {
		return
	}
	again, err := p.AcquireAs(t.Context(), "p", of(3), nonce)
	if err != nil || again.WorkerID != 2 || idOf(t, h) != 1 {
		t.Errorf("%+v %v, and %d", again, err, idOf(t, h))
	}
	if ring, err = p.Ring(t.Context(), "p", 0, 8); err != nil || ring.Used != 3 {
		t.Errorf("%d slots are used, %v", ring.Used, err)
	}
	expect.Error(t, "Release", h.Release(t.Context(), time.Time{}), nil)
}

// The server has moved the window, and may lose that again: the holder must not believe it.
func TestRenewalThatIsNotAcknowledgedExtendsNothing(t *testing.T) {
	t.Parallel()
	p, set := replicated(t)
	h := p.hold(t, "p", short(1), workerlease.HoldOptions{Once: true})
	before, err := h.Current()
	expect.NoError(t, "Current", err)
	set.Replicas()[0].Pause()
	expect.Eventually(t, "the server has moved the window", func() bool {
		ring, err := p.Ring(t.Context(), "p", before.WorkerID, 1)
		if now, err := h.Current(); err == nil {
			before = now // the last one that was confirmed
		}
		return err == nil && ring.Slots[0].NotAfter.After(before.NotAfter.Add(100*time.Millisecond))
	})
	for {
		lease, err := h.Lease()
		if err != nil {
			break
		}
		if !lease.NotAfter.Equal(before.NotAfter) {
			t.Fatalf("its window ends at %v, and what was confirmed at %v", lease.NotAfter, before.NotAfter)
		}
		time.Sleep(time.Millisecond)
	}
	expect.Error(t, "end of the hold", h.Err(), holder.ErrDeadline)
	_, err = p.Renew(t.Context(), before, 0)
	wantShortfall(t, err)
	_, err = p.Renew(t.Context(), before, 1) // all have confirmed this pool, and so all have to
	wantShortfall(t, err)
}

// The master dies. All that was confirmed is on the new one, so the holders of ids go on with them,
// and others are granted at once.
func TestFailoverThatAllConfirmedCostsNoWait(t *testing.T) {
	t.Parallel()
	p, set := replicated(t)
	request := of(3)
	holders, ids := p.several(t, request, 3)
	p.failover(t, set)
	var lease workerlease.Lease
	expect.Eventually(t, "the new master grants", func() bool {
		var err error
		lease, err = p.Acquire(t.Context(), "p", request)
		if err != nil && !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, redisstore.ErrUnknownOutcome) {
			t.Fatalf("acquiring from the new master: %v", err)
		}
		return err == nil
	})
	if slices.Contains(ids, lease.WorkerID) {
		t.Errorf("got worker id %d, which is one of those that are held: %v", lease.WorkerID, ids)
	}
	for i, h := range holders {
		if id := idOf(t, h); id != ids[i] {
			t.Errorf("holder %d has %d, and had %d", i, id, ids[i])
		}
	}
}

// failover kills the master, and waits until all three servers are in step again.
func (p pools) failover(t *testing.T, set *redistest.SentinelSet) {
	t.Helper()
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	old.Restart()
	expect.Eventually(t, "the old master is a replica, and both are in step", func() bool {
		info := set.Master().Client().Info(t.Context(), "replication").Val()
		return strings.Count(info, "state=online") == 2
	})
}

// The master dies, and what there is was confirmed by fewer replicas. The holder of an id goes on
// with it, and nothing is granted by the new master until all have had time to tell.
func TestHoldersOutliveAFailover(t *testing.T) {
	t.Parallel()
	all, set := replicated(t)
	request := of(3)
	one := all.store.WithAck(1)
	p := pools{workerlease.New(one, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Skew: 100 * time.Millisecond}), one}
	holders, ids := p.several(t, request, 3)
	before, err := p.Ring(t.Context(), "p", 0, 3)
	expect.NoError(t, "Ring p", err)
	p.failover(t, set)
	var err2 error
	expect.Eventually(t, "the new master answers", func() bool {
		_, err2 = p.Acquire(t.Context(), "p", request)
		return !errors.Is(err2, redisstore.ErrUnavailable) && !errors.Is(err2, redisstore.ErrUnknownOutcome)
	})
	wantIs(t, err2, workerlease.ErrQuarantined, redisstore.ErrRefused)
	expect.Eventually(t, "all have renewed with the new master", func() bool {
		ring, err := p.Ring(t.Context(), "p", 0, 3)
		if err != nil {
			return false
		}
		for i, slot := range ring.Slots {
			if slot.Fence != before.Slots[i].Fence || !slot.NotAfter.After(before.Slots[i].NotAfter) {
				return false
			}
		}
		return true
	})
	for i, h := range holders {
		if id := idOf(t, h); id != ids[i] {
			t.Errorf("holder %d has %d, and had %d", i, id, ids[i])
		}
	}
	_, err = p.Acquire(t.Context(), "p", request)
	wantIs(t, err, workerlease.ErrQuarantined, redisstore.ErrRefused)
}

// A master of a cluster dies that was not replaced by the time its pool's holders must stop;
// theirs are the only ones to.
func TestHoldersOfAClusterDependOnTheirShardOnly(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := storetest.Open(t, redisstore.Config{URL: cluster.URL()})
	p := pools{workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), store}
	dead := cluster.MasterOf(onstore.Key(store, "worker", "a"))
	other := ""
	for _, name := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"} {
		if cluster.MasterOf(onstore.Key(store, "worker", name)) != dead {
			other = name
			break
		}
	}
	for _, node := range cluster.Nodes() { // another shard is not to notice
		expect.NoError(t, "CONFIG SET cluster-node-timeout", node.Client().ConfigSet(t.Context(), "cluster-node-timeout", "120000").Err())
	}
	request := short(1)
	a := p.hold(t, "a", request, workerlease.HoldOptions{})
	b := p.hold(t, other, request, workerlease.HoldOptions{})
	dead.Pause()
	<-a.Context().Done()
	expect.Error(t, "end of the hold", a.Err(), holder.ErrDeadline)
	_ = idOf(t, b)
	dead.Resume()
	expect.Eventually(t, "it is served again", func() bool { _, err := p.Acquire(t.Context(), "a", request); return err == nil })
}
