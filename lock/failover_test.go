package lock

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// acknowledged are two processes whose grants count once a replica has them.
func acknowledged(t *testing.T, url string) (mine, others *Locks) {
	t.Helper()
	store := storetest.Open(t, redisstore.Config{URL: url, Ack: 1})
	return open(t, store, Config{Window: 300 * time.Millisecond}), open(t, store, Config{Window: 300 * time.Millisecond})
}

// The master dies while a lock is held and waited for. The holder goes on, the queue is served in
// its order, and fences rise.
func TestFailoverLosesNeitherTheHolderNorTheQueue(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	mine, others := acknowledged(t, set.URL())
	for _, mode := range []Mode{ModeExclusive, ModeShared} {
		const ttl = 45 * time.Second // a failover takes seconds
		held := must(t, mine, "over", Request{TTL: ttl, Mode: mode})
		second, third := startWaiter(t, others, "over", Request{}, 1), startWaiter(t, mine, "over", Request{}, 2)
		old := set.Master()
		old.Kill()
		set.WaitForMaster(old)
		since := time.Now()
		expect.Eventually(t, "the new master has renewed it", func() bool { return held.Err() != nil || held.Validity() > ttl-time.Since(since) })
		got := info(t, mine, "over")
		expect.Error(t, "lock after the failover", held.Err(), nil)
		expect.MustEqual(t, "number of holders after the failover", len(got.Holders), 1)
		expect.MustEqual(t, "fence after the failover", got.Holders[0].Fence, held.Fence())
		expect.Eventually(t, "both waiters stand in the queue, which a long failover empties", func() bool { return info(t, mine, "over").Queue == 2 })
		second.stillWaits(t)
		release(t, held)
		heir := second.granted(t)
		third.stillWaits(t)
		release(t, heir)
		last := third.granted(t)
		rising(t, held.Fence(), heir.Fence(), last.Fence())
		release(t, last)
		old.Restart()
	}
}

// A master of a cluster with only one replica dies while a lock of its slot is held and waited for.
func TestFailoverOfAClustersMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	store := storetest.Open(t, redisstore.Config{URL: cluster.URL()})
	mine, others := open(t, store, Config{}), open(t, store, Config{})
	const ttl = 45 * time.Second // a failover takes seconds
	held := must(t, mine, "over", Request{TTL: ttl})
	next := startWaiter(t, others, "over", Request{}, 1)
	old := cluster.MasterOf(mine.Key("over"))
	pipe := old.Client().Pipeline()
	pipe.Set(t.Context(), mine.Key("over")+":copied", 1, 0)
	copied := pipe.Do(t.Context(), "wait", 1, 1000)
	if _, err := pipe.Exec(t.Context()); err != nil || copied.Val() != int64(1) {
		t.Fatalf("WAIT for a copy: got %v and error %v, want 1 replica", copied, err)
	}
	old.Kill()
	since := time.Now()
	expect.Eventually(t, "the new master has renewed it", func() bool { return held.Err() != nil || held.Validity() > ttl-time.Since(since) })
	expect.NoError(t, "Err after the failover", held.Err())
	next.stillWaits(t)
	release(t, held)
	heir := next.granted(t)
	rising(t, held.Fence(), heir.Fence())
	release(t, heir)
}
