package counter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestNoValueTwiceOverFailovers(t *testing.T) {
	t.Parallel()
	for ack := range 2 {
		t.Run(fmt.Sprint("ack ", ack), func(t *testing.T) {
			t.Parallel()
			set := redistest.StartSentinel(t, 2)
			far := func(_ *redisstore.Config, c *counter.Config) { c.Margin = 100_000 }
			load := startLoad(t, process(t, set.URL(), acknowledged(ack), far), process(t, set.URL(), acknowledged(ack), far))
			old := set.Master()
			old.Kill()
			set.WaitForMaster(old)
			load.goesOn()
			load.end()
			load.once(t)
		})
	}
}

// The replica that takes over has not got what the master has given out last.
func TestReplicaThatWasBehindIsMovedPast(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	busy, idle := process(t, set.URL()), process(t, set.URL(), func(c *redisstore.Config, _ *counter.Config) { c.Timeout = 5 * time.Second })
	idle.countTo(t, "k", 50)
	replica := set.Replicas()[0]
	expect.Eventually(t, "the replica has it", func() bool {
		return replica.Client().Get(t.Context(), onstore.Key(busy.store, "counter", "k")).Val() == "50"
	})
	replica.Pause()
	for range 50 {
		busy.next(t, "k")
	}
	old := set.Master()
	old.Kill()
	replica.Resume()
	set.WaitForMaster(old)
	if got := idle.next(t, "k"); got <= 100 {
		t.Errorf("got %d", got)
	}
}

func TestNoValueTwiceOverAClustersFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	far := func(_ *redisstore.Config, c *counter.Config) { c.Margin = 100_000 }
	one := process(t, cluster.URL(), far)
	load := startLoad(t, one, process(t, cluster.URL(), far))
	key := onstore.Key(one.store, "counter", "k")
	old := cluster.MasterOf(key)
	old.Kill()
	cluster.MasterOf(key)
	load.goesOn()
	load.end()
	load.once(t)
}

func TestNoValueTwiceWhileASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c, other := process(t, cluster.URL()), process(t, cluster.URL())
	expect.NoError(t, "Set k", c.Set(t.Context(), "k", 5, counter.SetOptions{Back: true}))
	load := startLoad(t, c, other)
	m := cluster.StartMove(onstore.Key(c.store, "counter", "k"))
	m.Rest(0)
	load.goesOn() // by ASK
	m.Finish()
	load.goesOn() // by MOVED
	load.end()
	load.once(t)
}

func TestServerThatStopsWithCallsUnderWay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	brisk := func(c *redisstore.Config, _ *counter.Config) { c.Timeout = time.Second }
	load := startLoad(t, process(t, server.URL(), brisk), process(t, server.URL(), brisk))
	for range 2 {
		server.Pause()
		failed := func() int { load.mu.Lock(); defer load.mu.Unlock(); return len(load.failed) }
		before := failed()
		expect.Eventually(t, "calls fail", func() bool { return failed() > before })
		server.Resume()
		load.goesOn()
	}
	load.end()
	load.once(t)
	for _, err := range load.failed {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not say why", err)
		}
	}
}

func TestTooFewReplicasIsUnknownForAllThatWereMerged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := process(t, server.URL(), acknowledged(1), func(c *redisstore.Config, _ *counter.Config) { c.AckTimeout = 50 * time.Millisecond })
	for range 2 {
		_, err := c.Incr(t.Context(), "k")
		var short *redisstore.ShortfallError
		if !errors.Is(err, redisstore.ErrUnknownOutcome) || errors.Is(err, redisstore.ErrRefused) || !errors.As(err, &short) || !strings.Contains(err.Error(), "0 of 1") {
			t.Errorf("got %v", err)
		}
	}
}

// A process that confirms by no replica adds to what another confirms by all. The replica that
// takes over has not got what was added last, and shows that all have confirmed it.
func TestWhoConfirmsByFewerConfirmsByAllWhereOthersDid(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	brisk := func(c *redisstore.Config, _ *counter.Config) { c.AckTimeout = 300 * time.Millisecond }
	all := process(t, set.URL(), acknowledged(redisstore.AckAll), brisk)
	few := process(t, set.URL(), acknowledged(0), brisk)
	seen := map[int64]bool{all.next(t, "k"): true, few.next(t, "k"): true}
	replica := set.Replicas()[0]
	replica.Pause()
	value, err := few.Incr(t.Context(), "k")
	var short *redisstore.ShortfallError
	if !errors.As(err, &short) || !errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("Incr while the replica is away: got %d, %v, want an unknown outcome with a ShortfallError", value, err)
	}
	seen[value] = err == nil
	old := set.Master()
	old.Kill()
	replica.Resume()
	set.WaitForMaster(old)
	old.Restart() // it is one that has to confirm
	for range 3 {
		for _, p := range []counters{all, few} {
			value := p.next(t, "k")
			if seen[value] {
				t.Errorf("value %d was handed out twice", value)
			}
			seen[value] = true
		}
	}
}
