package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// brief is how long a call to a server that hangs waits.
const brief = time.Second

func hurried(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	t.Cleanup(cancel)
	return ctx
}

// The trap "INCR applied twice": with the retries that go-redis makes by default, one call whose
// reply is lost adds twice.
func TestLostReplyIsAnUnknownOutcomeAndTheScriptRanOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := between(t, server.Addr())
	guide := startFake(t, nil)
	guide.named = proxy.Addr()
	for mode, url := range map[redisstore.Mode]string{
		redisstore.ModeStandalone: proxy.URL(),
		redisstore.ModeSentinel:   "redis+sentinel://" + guide.addr + "/main",
		redisstore.ModeCluster:    "redis+cluster://" + guide.addr,
	} {
		store := open(t, url, nil)
		warm(t, store, 1)
		for ack := range 2 {
			t.Run(fmt.Sprintf("%s, ack %d", mode, ack), func(t *testing.T) {
				runs := proxy.runs.Load()
				proxy.set(cutAfter)
				_, err := bumped(t.Context(), store.WithAck(ack), t.Name())
				proxy.set(pass)
				unknown(t, err, io.EOF)
				expect.Equal(t, "times that the script was sent", proxy.runs.Load()-runs, 1)
				expect.Equal(t, "calls that ran", counted(t, store, t.Name()), 1)
			})
		}
	}
}

func TestLostReplyToAScriptSentAsTextIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	proxy := between(t, redistest.Start(t).Addr())
	store := open(t, proxy.URL(), nil)
	expect.NoError(t, "Ping", store.Ping(t.Context())) // a connection, and no script
	proxy.set(cutAfter)
	_, err := bumped(t.Context(), store, "x") // even the hash's reply, NOSCRIPT, is lost
	unknown(t, err, io.EOF)
	proxy.set(pass)
	expect.Equal(t, "calls that ran", counted(t, store, "x"), 0)
}

func TestRepeatedRequestAfterALostReplyGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	proxy := between(t, redistest.Start(t).Addr())
	store := open(t, proxy.URL(), nil)
	keys := []string{onstore.Key(store, "counter", "c"), onstore.Key(store, "counter", "c", "record"),
		onstore.SlotKey(store, "counters", "marker", "c"), onstore.Key(store, "counter", "c", "request")}
	if _, err := onstore.Run(t.Context(), store, scripts.CounterEra, keys[2:3], "", 1000); err != nil {
		t.Fatalf("Run: got error %v, want none", err)
	}
	incr := func() (scripts.Reply, error) {
		return onstore.Run(t.Context(), store, scripts.CounterIncr, keys, 1, 60_000, "", "", "", 0, "begin")
	}
	first, err := incr()
	expect.NoError(t, "an increment", err)
	keys[3] += "2"
	proxy.set(cutAfter)
	_, err = incr()
	unknown(t, err)
	proxy.set(pass)
	for range 2 {
		again, err := incr()
		if err != nil || first.Values()[0] != "1" || again.Values()[0] != "2" {
			t.Errorf("got %v after %v, %v", again, first, err)
		}
	}
}

func TestConnectionCutBeforeTheRequestArrives(t *testing.T) {
	t.Parallel()
	proxy := between(t, redistest.Start(t).Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 1)
	proxy.set(cutBefore)
	_, err := bumped(t.Context(), store, "x")
	unknown(t, err) // this side cannot tell it from a lost reply
	_, err = number(t.Context(), store, peek, "x")
	refused(t, err)
	proxy.set(pass)
	mustBump(t, store, "x", 1)
}

func TestRequestThatIsNeverAnsweredEndsWithTheCallersDeadline(t *testing.T) {
	t.Parallel()
	proxy := between(t, redistest.Start(t).Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 1)
	proxy.set(swallow)
	soon(t, func() {
		_, err := bumped(hurried(t), store, "x")
		unknown(t, err, context.DeadlineExceeded)
	})
	soon(t, func() {
		_, err := bumped(hurried(t), store.WithAck(1), "x")
		unknown(t, err, context.DeadlineExceeded)
	})
	soon(t, func() {
		_, err := number(hurried(t), store, peek, "x")
		refused(t, err, context.DeadlineExceeded)
	})
	proxy.set(pass)
	mustBump(t, store, "x", 1)
}

func TestRequestThatTimedOutMayRunLaterOnce(t *testing.T) {
	t.Parallel()
	proxy := between(t, redistest.Start(t).Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 1)
	proxy.set(delay)
	_, err := bumped(hurried(t), store, "x")
	unknown(t, err, context.DeadlineExceeded)
	proxy.set(pass)
	expect.MustEqual(t, "calls that ran already", counted(t, store, "x"), 0)
	close(proxy.later)
	expect.Eventually(t, "the late request runs", func() bool { return counted(t, store, "x") == 1 })
	mustBump(t, store, "x", 2)
}

func TestServerThatAcceptsAndSaysNothingIsUnavailable(t *testing.T) {
	t.Parallel()
	proxy := between(t, redistest.Start(t).Addr())
	proxy.SetDeaf(true)
	store := open(t, proxy.URL(), func(c *redisstore.Config) { c.Timeout = brief })
	for range 3 {
		soon(t, func() {
			_, err := bumped(t.Context(), store, "x")
			refused(t, err, context.DeadlineExceeded)
		})
	}
	soon(t, func() { refused(t, store.Ping(t.Context()), context.DeadlineExceeded) })
	expect.Equal(t, "scripts that were sent", proxy.runs.Load(), 0)
	proxy.SetDeaf(false)
	expect.Eventually(t, "the store works", func() bool { _, err := number(t.Context(), store, peek, "x"); return err == nil })
}

func TestHungServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	brisk := open(t, server.URL(), func(c *redisstore.Config) { c.Timeout = brief })
	warm(t, store, 8)
	expect.Eventually(t, "a connection within the short timeout", func() bool { return brisk.Ping(t.Context()) == nil })

	server.Pause()
	sent := 0 // calls that may have reached the server
	for range 4 {
		soon(t, func() {
			_, err := bumped(hurried(t), store, "x")
			inClass(t, err)
			hasCauses(t, err, []error{context.DeadlineExceeded})
			if errors.Is(err, redisstore.ErrUnknownOutcome) {
				sent++
			}
		})
	}
	if sent == 0 {
		t.Error("no call was sent over the open connections")
	}
	soon(t, func() {
		_, err := number(hurried(t), store, peek, "x")
		refused(t, err, context.DeadlineExceeded)
	})
	soon(t, func() { // by the store's timeout, without a deadline of the caller's
		_, err := bumped(t.Context(), brisk, "x")
		unknown(t, err, context.DeadlineExceeded)
		sent++
	})
	soon(t, func() { refused(t, brisk.Ping(t.Context()), context.DeadlineExceeded) })

	server.Resume()
	expect.Eventually(t, "the server answers", func() bool { return store.Ping(t.Context()) == nil })
	var before int64
	expect.Eventually(t, "what it had received has run", func() bool { // it stands still
		last := before
		before = counted(t, store, "x")
		return before == last
	})
	if before > int64(sent) {
		t.Errorf("%d calls that may have been sent ran %d times", sent, before)
	}
	mustBump(t, store, "x", before+1)
}

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := between(t, server.Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 1)
	runs := proxy.runs.Load()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, view := range []*redisstore.Store{store, store.WithAck(1)} {
		_, err := bumped(cancelled, view, "x")
		refused(t, err, context.Canceled)
		_, err = bumped(late, view, "x")
		refused(t, err, context.DeadlineExceeded)
	}
	refused(t, store.Ping(cancelled), context.Canceled)
	expect.Equal(t, "scripts that were sent", proxy.runs.Load()-runs, 0)
	mustBump(t, store, "x", 1)
}

func TestServerThatIsDownIsUnavailableAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL()+"?pool_size=4", nil)
	warm(t, store, 8)
	server.Kill()
	said := messages.records.Load()
	soon(t, func() {
		for range 20 { // more than the pool has places
			_, err := bumped(t.Context(), store, "x")
			// a connection whose end was not seen in time
			if !errors.Is(err, redisstore.ErrUnknownOutcome) {
				refused(t, err)
			}
		}
		for range 20 { // by now none is left
			_, err := bumped(t.Context(), store, "x")
			refused(t, err, syscall.ECONNREFUSED)
		}
		refused(t, store.Ping(t.Context()), syscall.ECONNREFUSED)
	})
	if messages.records.Load() == said {
		t.Error("go-redis said nothing to the logger about the dials that failed")
	}
	server.Restart()
	expect.Eventually(t, "the store works again", func() bool { _, err := bumped(t.Context(), store, "y"); return err == nil })
	expect.Equal(t, "refused calls that ran", counted(t, store, "x"), 0)
}

func TestConnectionsOfARestartedServerAreReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	for round := range 3 {
		warm(t, store, 16)
		server.Restart() // which loses its keys
		uncertain := int64(0)
		expect.Eventually(t, "a call succeeds", func() bool {
			_, err := bumped(t.Context(), store, "x")
			if err == nil {
				return true
			}
			inClass(t, err)
			if errors.Is(err, redisstore.ErrUnknownOutcome) {
				uncertain++
			}
			return false
		})
		if n := counted(t, store, "x"); n < 1 || n > 1+uncertain {
			t.Errorf("round %d: one call succeeded, %d may have, and the count is %d", round, uncertain, n)
		}
	}
}

// Calls share the connections of the pool, so more of them than it has may have been sent; those
// that were not sent say so.
func TestHungServerRunsNoCallThatWasRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL()+"?pool_size=2", nil)
	warm(t, store, 16)
	server.Pause()
	ctx := hurried(t)
	var all sync.WaitGroup
	var uncertain atomic.Int64
	soon(t, func() {
		for range 32 {
			all.Go(func() {
				_, err := bumped(ctx, store, "x")
				inClass(t, err)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v is not %v", err, context.DeadlineExceeded)
				}
				if errors.Is(err, redisstore.ErrUnknownOutcome) {
					uncertain.Add(1)
				}
			})
		}
		all.Wait()
	})
	server.Resume()
	expect.Eventually(t, "the store works again", func() bool { _, err := bumped(t.Context(), store, "y"); return err == nil })
	if n := counted(t, store, "x"); n > uncertain.Load() {
		t.Errorf("%d ran, and %d may have been sent", n, uncertain.Load())
	}
}

func TestStoreOpensNoMoreConnectionsThanItsPoolHas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	before := len(strings.Split(do(t, server, "CLIENT", "LIST").(string), "\n"))
	store := open(t, server.URL()+"?pool_size=3", func(c *redisstore.Config) { c.AckTimeout = 10 * time.Millisecond })
	warm(t, store, 32)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() { _, _ = bumped(t.Context(), store.WithAck(1), "x") }) // in a pipeline
	}
	warm(t, store, 32)
	all.Wait()
	if n := len(strings.Split(do(t, server, "CLIENT", "LIST").(string), "\n")) - before; n > 3 {
		t.Errorf("the store holds %d connections, its pool 3", n)
	}
}
