package stamper_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A pool that is lost and declared anew with another layout, again and again, while many stamp:
// each id is of the layout that is told with it, and none comes twice.
func TestPoolWithAnotherLayoutGetsAnotherGenerator(t *testing.T) {
	bubble(t, stamper.Config{Default: "p"}, trust, func(t *testing.T, b bench) {
		type stamped struct {
			layout snowflake.Layout
			id     snowflake.ID
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		seen, done := map[stamped]bool{}, false
		b.take(t, "p", 1)
		for range 8 {
			wg.Go(func() {
				for {
					mu.Lock()
					if done {
						mu.Unlock()
						return
					}
					mu.Unlock()
					ids := make([]snowflake.ID, 3)
					origin, err := b.Stamp(t.Context(), "p", ids)
					if err != nil && !errors.Is(err, stamper.ErrUnavailable) {
						t.Errorf("stamping 3 ids: got error %v, want none or %v", err, stamper.ErrUnavailable)
					}
					mu.Lock()
					for _, id := range ids {
						if err == nil && seen[stamped{origin.Layout, id}] {
							t.Errorf("id %d was stamped twice in layout %v", id, origin.Layout)
						}
						if apart := time.Since(origin.Layout.Decode(id, origin.Epoch).Time).Abs(); err == nil && apart > time.Minute {
							t.Errorf("%d is no id of layout %v: it would be of %v from now", id, origin.Layout, apart)
						}
						if err == nil {
							seen[stamped{origin.Layout, id}] = true
						}
					}
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		layouts := []string{"41/5/5/12", "41/12/10", "41/10/12"}
		for era := range 9 {
			layout := layouts[era%len(layouts)]
			b.lose(t, "p")
			b.create(t, "p", layout)
			for {
				time.Sleep(time.Second)
				if origin, ok := b.Origin("p"); ok && origin.Layout.String() == layout {
					break
				}
			}
		}
		mu.Lock()
		done = true
		mu.Unlock()
		wg.Wait()
		b.take(t, "p", 100)
	})
}

func TestLostLeaseIsFollowedByAnother(t *testing.T) {
	bubble(t, stamper.Config{Default: "p"}, trust, func(t *testing.T, b bench) {
		_, first := b.take(t, "p", 1)
		key := onstore.Key(b.store, "worker", "p")
		// another's
		b.run(t, "redis.call('HSET', KEYS[1], 's:0', (string.gsub(redis.call('HGET', KEYS[1], 's:0'), '^%S+', 'AAAAAAAAAAAAAAAAAAAAAA')))", key)
		time.Sleep(workerlease.DefaultTTL)
		_, second := b.take(t, "p", 1)
		if first.WorkerID != 0 || second.WorkerID != 1 {
			t.Errorf("origins: got %+v and then %+v, want worker ids 0 and 1", first, second)
		}
		status := b.Status()[0]
		expect.Equal(t, "Status: held", status.Held, true)
		expect.Equal(t, "Status: worker id", status.WorkerID, 1)
	})
}

// A pool whose key holds something else is refused for good, and asked for again by the next who
// wants an id.
func TestPoolThatIsRefusedForGoodIsTriedAgainByTheNextUse(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		key := onstore.Key(b.store, "worker", "p")
		b.run(t, "redis.call('SET', KEYS[1], 'x')", key)
		for range 3 {
			_, err := b.Stamp(t.Context(), "p", make([]snowflake.ID, 1))
			expect.Error(t, "stamping an id of pool p", err, redisstore.ErrWrongType)
		}
		status := b.Status()[1]
		expect.Equal(t, "Status: held", status.Held, false)
		expect.Error(t, "Status", status.Err, redisstore.ErrWrongType)
		b.lose(t, "p")
		b.take(t, "p", 1)
	})
}

func TestStoreThatIsAwayIsToldAndStampingGoesOnWhileTheLeaseLasts(t *testing.T) {
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 2 * time.Second})
	b := on(t, store, stamper.Config{}, trust)
	expect.NoError(t, "creating pool p", b.pools.Create(t.Context(), "p", shape(t, "41/10/12"), 5*time.Second))
	b.take(t, "p", 1)
	redis.Kill()
	end := b.Status()[0].NotAfter
	for {
		ids := make([]snowflake.ID, 100)
		origin, err := b.Stamp(t.Context(), "p", ids)
		if err != nil {
			break
		}
		if last := origin.Layout.Decode(ids[99], origin.Epoch).Time; !last.Before(end) {
			t.Fatalf("stamped an id of %v, want it before the end of the window, %v", last, end)
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.wantUnavailable(t, "p", "")
	b.wantUnavailable(t, "another", "no worker id can be leased now")
	redis.Restart()
	for _, pool := range []string{"p", "another"} {
		expect.Eventually(t, pool+" is stamped again", func() bool {
			_, err := b.Stamp(t.Context(), pool, make([]snowflake.ID, 1))
			return err == nil
		})
	}
}
