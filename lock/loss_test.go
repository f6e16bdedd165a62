package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The configuration of the users of a Redis that loses data.
const (
	longest = 6 * time.Second // a failover takes half of it
	skew    = 500 * time.Millisecond
)

// lossy is a Redis that is made to lose data.
type lossy struct {
	url    string
	master func() *redistest.Server
	before func() // before the grant that is to be lost
	lose   func()
}

// losses are the ways in which a Redis loses leases that it has confirmed.
var losses = map[string]func(t *testing.T) lossy{
	"restarted empty": func(t *testing.T) lossy {
		server := redistest.Start(t)
		return lossy{server.URL(), func() *redistest.Server { return server }, func() {}, server.RestartEmpty}
	},
	"FLUSHALL": func(t *testing.T) lossy {
		server := redistest.Start(t)
		return lossy{server.URL(), func() *redistest.Server { return server }, func() {}, func() {
			expect.NoError(t, "FlushAll", server.Client().FlushAll(t.Context()).Err())
		}}
	},
	// Grants reach no replica: the replicas are paused, without a connection from which they could
	// read later. Then one of them becomes master.
	"failover without the last writes": func(t *testing.T) lossy {
		set := redistest.StartSentinel(t, 2)
		master, replicas := set.Master(), set.Replicas()
		cut := func() {
			for _, replica := range replicas {
				replica.Pause()
			}
			expect.NoError(t, "CLIENT KILL TYPE replica", master.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
		}
		return lossy{set.URL(), set.Master, cut, func() {
			master.Kill()
			for _, replica := range replicas {
				replica.Resume()
			}
			set.WaitForMaster(master)
		}}
	},
}

// Redis loses locks that are held. Nothing is granted until every lease that it may have given has
// ended, the old holder's renewal revives nothing, and fences go on rising.
func TestNothingIsGrantedAfterALossUntilOldLeasesHaveEnded(t *testing.T) {
	t.Parallel()
	for name, begin := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t)
			config := Config{AfterLoss: AfterLossWait, LongestTTL: longest, Skew: skew, Window: 300 * time.Millisecond}
			locks, others := open(t, storetest.Open(t, redisstore.Config{URL: r.url}), config), open(t, storetest.Open(t, redisstore.Config{URL: r.url}), config)
			trust(t, locks, r.master())
			earlier := must(t, locks, "lost", Request{})
			release(t, earlier)
			inUse(t, r.master(), locks)

			r.before()
			held := must(t, locks, "lost", Request{})
			readers := must(t, others, "readers", Request{Mode: ModeShared})
			grant, err := locks.TryGrant(t.Context(), "grant", Request{})
			expect.NoError(t, "TryGrant grant", err)
			r.lose()
			lostAt := timeOf(t, r.master())
			if n := r.master().Client().Exists(t.Context(), locks.Key("lost"), locks.Key("readers"), locks.Key("grant")).Val(); n != 0 {
				t.Fatalf("%d of the locks are still there", n)
			}

			doubt := wantDoubt(t, heard(t, func() error {
				_, err := others.TryAcquire(t.Context(), "never-used", Request{})
				return err
			}))
			if doubt.Wait > longest+skew {
				t.Errorf("%v is longer than any lease", doubt.Wait)
			}
			wantIs(t, heard(t, func() error {
				_, err := locks.Renew(t.Context(), grant)
				return err
			}), ErrLost)
			for _, next := range scramble(t, []*Locks{locks, others}) {
				if waited := next.Since().Sub(lostAt); waited < longest+skew {
					t.Errorf("%s was granted %v after the loss", next.Name(), waited)
				}
				before := map[string]int64{"lost": held.Fence(), "readers": readers.Fence(), "grant": grant.Fence}[next.Name()]
				if next.Fence() <= before {
					t.Errorf("%s: fence %d after %d", next.Name(), next.Fence(), before)
				}
			}
			wantIs(t, held.Err(), ErrLost)
			wantIs(t, readers.Err(), ErrLost)
			wantIs(t, held.Release(t.Context()), ErrLost)
			wantIs(t, readers.Release(t.Context()), ErrLost)
			rising(t, earlier.Fence(), held.Fence())
		})
	}
}

// trust makes a Redis look as if it had been in use for longer than any lease.
func trust(t *testing.T, locks *Locks, server *redistest.Server) {
	t.Helper()
	_, err := locks.TryAcquire(t.Context(), "any", Request{})
	wantDoubt(t, err)
	marker := locks.keys("any")[5]
	life, _, _ := strings.Cut(server.Client().Get(t.Context(), marker).Val(), " ")
	expect.NoError(t, "Set", server.Client().Set(t.Context(), marker, life+" 0", 0).Err())
}

// inUse waits until all replicas have what was written.
func inUse(t *testing.T, master *redistest.Server, locks *Locks) {
	t.Helper()
	ctx := t.Context()
	info, err := master.Client().Info(ctx, "replication").Result()
	expect.NoError(t, "Info replication", err)
	replicas := strings.Count(info, "state=online")
	expect.Eventually(t, "every replica has it", func() bool {
		pipe := master.Client().Pipeline()
		pipe.Set(ctx, locks.Key("copied"), 1, time.Minute)
		copied := pipe.Do(ctx, "WAIT", replicas, 100)
		_, err := pipe.Exec(ctx)
		return err == nil && copied.Val() == int64(replicas)
	})
}

func timeOf(t *testing.T, server *redistest.Server) time.Time {
	t.Helper()
	var now time.Time
	expect.Eventually(t, "the server tells its time", func() bool { // its restart may cut this
		var err error
		now, err = server.Client().Time(t.Context()).Result()
		return err == nil
	})
	return now.Truncate(time.Millisecond) // as grants report it
}

// heard asks until Redis answers.
func heard(t *testing.T, ask func() error) (err error) {
	t.Helper()
	expect.Eventually(t, "Redis answers", func() bool {
		err = ask()
		return !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, redisstore.ErrUnknownOutcome)
	})
	return err
}

// scramble has two ask for each of some locks, those that were lost and another: one queues, and
// one tries repeatedly. It returns everything that was granted.
func scramble(t *testing.T, processes []*Locks) (granted []*Lock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, request := range map[string]Request{"lost": {}, "readers": {}, "grant": {Mode: ModeShared}, "never-used": {Mode: ModePermits}} {
		for i, locks := range processes {
			all.Go(func() {
				acquire := locks.Acquire
				if i > 0 {
					acquire = locks.TryAcquire
				}
				lock, err := acquire(ctx, name, request)
				for ; errors.Is(err, ErrInDoubt) && ctx.Err() == nil; lock, err = acquire(ctx, name, request) {
					sleep(ctx, nil, 10*time.Millisecond)
				}
				if i > 0 && errors.Is(err, ErrHeld) {
					return // the other one has it
				}
				if err == nil {
					mu.Lock()
					granted = append(granted, lock)
					mu.Unlock()
					err = lock.Release(ctx)
				}
				if err != nil {
					t.Errorf("acquiring and releasing %s: %v", name, err)
				}
			})
		}
	}
	all.Wait()
	return granted
}
