package counter_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

func (c counters) countTo(t testing.TB, key string, value int64) {
	t.Helper()
	for last := int64(0); last < value; {
		got, err := c.IncrBy(t.Context(), key, min(value-last, counter.MaxBy))
		expect.NoError(t, "IncrBy", err)
		last = got.Last
	}
}

func TestNoValueTwiceWhenEverythingIsFlushedOrRestartsEmpty(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server){
		"flushed":       func(s *redistest.Server) { do(t, s, "FLUSHALL") },
		"restart empty": (*redistest.Server).RestartEmpty,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			load := startLoad(t, process(t, server.URL()), process(t, server.URL()), process(t, server.URL()))
			for range 3 {
				lose(server)
				load.goesOn()
			}
			load.end()
			load.once(t)
		})
	}
}

// One process knows the counter; another, which runs as well, does not, and is the first to add
// after the loss.
func TestIdleProcessSaysWhatItHasSeen(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name  string
		other func(*redisstore.Config, *counter.Config)
	}{{"moved", func(*redisstore.Config, *counter.Config) {}}, {"refused", strict}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			idle, other := process(t, server.URL(), how.other, unhurried), process(t, server.URL(), how.other, unhurried)
			idle.countTo(t, "k", 100)
			other.countTo(t, "own", 5)
			do(t, server, "FLUSHALL")
			_, err := other.Incr(t.Context(), "k")
			if wait := redisstore.RetryAfter(err); wait <= 0 || wait > 10*time.Second {
				t.Errorf("Incr after the loss: got %v, want a wait of up to 10s", err)
			}
			wantRefused(t, err, counter.ErrHoldOff)
			if how.name == "moved" {
				if got := other.next(t, "k"); got <= 100 || got > 101+margin {
					t.Errorf("got %d", got)
				}
				return
			}
			expect.Eventually(t, "it is refused", func() bool { _, err = other.Incr(t.Context(), "k"); return errors.Is(err, counter.ErrBehind) })
			_, err = idle.Incr(t.Context(), "k")
			wantRefused(t, err, counter.ErrBehind)
			expect.NoError(t, "Set k", other.Set(t.Context(), "k", 500, counter.SetOptions{Back: true}))
			other.gets(t, "k", 501)
			idle.gets(t, "k", 502)
		})
	}
}

// A process that learns of the loss by one counter reports what it has seen of all.
func TestProcessThatIsHeldOffSaysWhatItHasSeenOfOtherKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := process(t, server.URL(), unhurried)
	c.countTo(t, "idle", 100)
	c.countTo(t, "busy", 5)
	do(t, server, "FLUSHALL")
	_, err := c.Incr(t.Context(), "busy")
	wantRefused(t, err, counter.ErrHoldOff)
	stranger := process(t, server.URL(), unhurried)
	if got := stranger.next(t, "idle"); got <= 100 {
		t.Errorf("got %d", got)
	}
	if got := c.next(t, "busy"); got <= 5 {
		t.Errorf("got %d", got)
	}
}

// A process whose connections are whole may think that its counter is in order.
func TestProcessThatWasIdleIsHeldOffToo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := process(t, server.URL(), func(_ *redisstore.Config, c *counter.Config) { c.HoldOff = time.Minute / 4 })
	other := process(t, server.URL(), func(_ *redisstore.Config, c *counter.Config) { c.HoldOff = time.Minute / 4 })
	c.countTo(t, "k", 100)
	other.countTo(t, "k", 150)
	do(t, server, "FLUSHALL")
	_, err := other.Incr(t.Context(), "k")
	wantRefused(t, err, counter.ErrHoldOff)
	_, err = c.Incr(t.Context(), "k") // it has seen less than the other
	wantRefused(t, err, counter.ErrHoldOff)
}

// A process that knows nothing was the first to come after the loss, and the counter is larger than
// what another has seen of it.
func TestCounterOfAnotherEraIsNotAddedTo(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]counter.Request{"plain": {}, "with a limit": {Limit: 1 << 40}, "with a request id": {RequestID: "id"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			// its watch finds nothing for a quarter of that
			slow := func(_ *redisstore.Config, c *counter.Config) { c.HoldOff = time.Minute }
			c, stranger := process(t, server.URL(), slow), process(t, server.URL(), slow)
			c.countTo(t, "k", 100)
			do(t, server, "FLUSHALL")
			stranger.countTo(t, "k", 1000)
			_, err := c.Add(t.Context(), "k", request)
			wantRefused(t, err, counter.ErrHoldOff)
			c.want(t, "k", 1000+noLife(request))
		})
	}
}

// noLife is what a request adds that turns out to have been in another era, as a gap.
func noLife(request counter.Request) int64 {
	if request.Limit > 0 || request.RequestID != "" {
		return 0 // its script reads first
	}
	return 1
}

func TestWatchReportsManyCountersInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var away atomic.Bool
	slow := redistest.StartProxy(t, server.Addr(), func([]byte) (redistest.Fate, func()) {
		if away.Load() {
			time.Sleep(60 * time.Millisecond) // the way there
		}
		return redistest.Pass, nil
	})
	idle, other := process(t, slow.URL(), unhurried), process(t, server.URL(), unhurried)
	const keys = 400 // 24 s, one after the other
	for i := range keys {
		idle.countTo(t, fmt.Sprint("k", i), 10)
	}
	other.countTo(t, "own", 5)
	away.Store(true)
	do(t, server, "FLUSHALL")
	for i := range keys {
		if got := other.next(t, fmt.Sprint("k", i)); got <= 10 {
			t.Fatalf("k%d: got %d", i, got)
		}
	}
}

func TestWatchThatIsCutOffAsksAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var cuts atomic.Int32
	proxy := between(t, server.Addr(), func(request []byte) redistest.Fate {
		if bytes.Contains(request, []byte(":record")) && cuts.Add(-1) >= 0 {
			return redistest.CutBefore
		}
		return redistest.Pass
	})
	idle, other := process(t, proxy.URL(), unhurried), process(t, server.URL(), unhurried)
	idle.countTo(t, "k", 100)
	other.countTo(t, "own", 5)
	cuts.Store(3)
	do(t, server, "FLUSHALL")
	if got := other.next(t, "k"); got <= 100 {
		t.Errorf("got %d", got)
	}
}

func TestCounterThatIsBehindByHandMoves(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string][]any{"deleted": {"DEL"}, "set back": {"SET", "60"}, "deleted with its record": {"DEL", "record"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			c, refusing, once := process(t, server.URL()), process(t, server.URL(), strict), process(t, server.URL())
			key, record := onstore.Key(c.store, "counter", "k"), onstore.Key(c.store, "counter", "k", "record")
			c.countTo(t, "k", 100)
			refusing.gets(t, "k", 101)
			once.gets(t, "k", 102)
			words := []any{fault[0], key}
			if name == "set back" {
				words = append(words, "60")
			} else if len(fault) > 1 {
				words = append(words, record)
			}
			do(t, server, words...)
			_, err := refusing.Incr(t.Context(), "k")
			var behind *counter.BehindError
			if wantRefused(t, err, counter.ErrBehind); !errors.As(err, &behind) || behind.Seen != 101 || behind.Value > 61 {
				t.Errorf("Incr below what was seen: got %+v, want 101 seen and a value of up to 61", behind)
			}
			do(t, server, words...)
			if got, err := once.Add(t.Context(), "k", counter.Request{RequestID: "id"}); err != nil || got.Last != 102+margin+1 {
				t.Errorf("with a request id: %+v, %v", got, err)
			}
			c.gets(t, "k", 102+margin+2)
			do(t, server, words...)
			c.gets(t, "k", 102+2*margin+3)
		})
	}
}

// What a process adds to a counter that has gone back can lift it above all that the process has
// seen. That hides the loss from the process, which must not hide it: others have seen more.
func TestLargeAdditionDoesNotHideThatACounterIsBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, refusing, other := process(t, server.URL()), process(t, server.URL(), strict), process(t, server.URL())
	c.countTo(t, "k", 50)
	refusing.gets(t, "k", 51)
	for value := int64(52); value <= 90; value++ {
		other.gets(t, "k", value)
	}
	key := onstore.Key(c.store, "counter", "k")
	do(t, server, "DEL", key)
	_, err := refusing.IncrBy(t.Context(), "k", 60)
	wantRefused(t, err, counter.ErrBehind)
	do(t, server, "DEL", key)
	got, err := c.IncrBy(t.Context(), "k", 60)
	if err != nil || got.First <= 90 {
		t.Errorf("IncrBy 60 after the counter was deleted at 90: got %+v, %v; want values above 90", got, err)
	}
	do(t, server, "SET", key, "20")
	got, err = c.Add(t.Context(), "k", counter.Request{By: 1_000_000, RequestID: "id"})
	if err != nil || got.First <= 90+margin {
		t.Errorf("Add of 1,000,000 with a request id after the counter was set back to 20: got %+v, %v; want values above %d", got, err, 90+margin)
	}
}

// The server comes back with what it had a while ago.
func TestOlderSnapshotHandsNothingOutTwice(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(counters) (counter.Range, error){
		"plain": func(c counters) (counter.Range, error) { return c.Add(t.Context(), "k", counter.Request{}) },
		"with a limit": func(c counters) (counter.Range, error) {
			return c.Add(t.Context(), "k", counter.Request{Limit: 1 << 40})
		},
		"with a request id": func(c counters) (counter.Range, error) {
			return c.Add(t.Context(), "k", counter.Request{RequestID: "id"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			busy, idle, refusing := process(t, server.URL()), process(t, server.URL()), process(t, server.URL(), strict)
			idle.countTo(t, "k", 50)
			refusing.gets(t, "k", 51)
			do(t, server, "SAVE")
			for range 50 {
				busy.next(t, "k")
			}
			server.Kill()
			server.Restart()
			var got counter.Range
			expect.Eventually(t, "it is served", func() bool {
				var err error
				got, err = add(idle)
				return err == nil
			})
			if got.Last <= 101 || got.Last > 110+margin {
				t.Errorf("got %+v", got)
			}
			again, err := add(idle)
			if name == "with a request id" {
				if err != nil || again != got {
					t.Errorf("again: %+v, %v", again, err)
				}
			} else if err != nil || again.Last != got.Last+1 {
				t.Errorf("next: %+v, %v", again, err)
			}
			if got := refusing.next(t, "k"); got <= 101 { // it was put in order by the others
				t.Errorf("got %d", got)
			}
		})
	}
}

func TestStrictRefusesAfterAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, fresh := process(t, server.URL(), strict), process(t, server.URL(), strict)
	c.countTo(t, "k", 50)
	do(t, server, "SAVE")
	c.gets(t, "k", 51)
	server.Kill()
	server.Restart()
	for _, p := range []counters{fresh, c} {
		var err error
		expect.Eventually(t, "it is refused for what it holds", func() bool { _, err = p.Incr(t.Context(), "k"); return errors.Is(err, counter.ErrBehind) })
		wantRefused(t, err, counter.ErrBehind)
		_, err = p.Add(t.Context(), "k", counter.Request{RequestID: "id"})
		wantRefused(t, err, counter.ErrBehind)
	}
	// What was added as a connection turned out to be new was handed to no caller.
	if got, err := c.Get(t.Context(), "k"); err != nil || got < 50 || got > 52 {
		t.Errorf("k is %d, %v; want 50, and at most one more for each of 2 connections", got, err)
	}
	expect.NoError(t, "Set k", fresh.Set(t.Context(), "k", 51, counter.SetOptions{Back: true}))
	c.gets(t, "k", 52)
	fresh.gets(t, "k", 53)
}

func TestMarginIsSmallWhereReplicasConfirm(t *testing.T) {
	for ack, want := range map[int]int64{0: counter.DefaultMargin, 1: counter.DefaultAckMargin, redisstore.AckAll: counter.DefaultAckMargin} {
		expect.Equal(t, fmt.Sprintf("the default margin with ack %d", ack), counter.MarginWith(ack), want)
	}
}

// trips counts round trips.
type trips struct {
	n atomic.Int64
}

func (o *trips) BatchEnded(observe.Batch) { o.n.Add(1) }

// A process that watches the slots of a cluster does not ask for one after the other: thousands of
// round trips would take longer than the hold-off within which it has to report.
func TestWatchAsksForManySlotsAtOnce(t *testing.T) {
	seen := &trips{}
	store := storetest.Open(t, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{{BatchEnded: seen.BatchEnded}}})
	c := counter.New(store, counter.Config{})
	defer c.Close()
	markers := make([]string, 2000)
	for i := range markers {
		markers[i] = onstore.Key(store, "counters", strconv.Itoa(i), "marker")
	}
	before := seen.n.Load()
	counter.Poll(t.Context(), c, markers)
	if n := seen.n.Load() - before; n > int64(len(markers))/2 {
		t.Errorf("%d slots were asked in %d round trips, want many in one", len(markers), n)
	}
}
