package lock

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Plain clients of redislock and ours exclude each other, in either order and in every mode.
func TestPlainRedislockAndOursExcludeEachOther(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	ctx := t.Context()
	for name, at := range map[string]struct {
		url    string
		client func(key string) *redis.Client
	}{
		"redis":   {server.URL(), func(string) *redis.Client { return server.Client() }},
		"cluster": {cluster.URL(), func(key string) *redis.Client { return cluster.MasterOf(key).Client() }},
	} {
		t.Run(name, func(t *testing.T) {
			locks := open(t, storetest.Open(t, redisstore.Config{URL: at.url}), Config{Window: MinTTL})
			key := locks.Key("both")
			plain := redislock.New(at.client(key))
			for _, request := range []Request{{}, {Mode: ModeShared}, {Permits: 2}} {
				held := must(t, locks, "both", request)
				_, err := plain.Obtain(ctx, key, time.Minute, nil)
				wantIs(t, err, redislock.ErrNotObtained)
				_, err = plain.Obtain(ctx, key, time.Minute, &redislock.Options{Token: strings.Repeat("A", 22)})
				wantIs(t, err, redislock.ErrNotObtained)
				release(t, held)

				theirs, err := plain.Obtain(ctx, key, time.Minute, &redislock.Options{Metadata: "secret or not"})
				expect.NoError(t, "Obtain", err)
				wantHeld(t, locks, "both", request)
				got := info(t, locks, "both")
				expect.Equal(t, "mode of a plain client's lock", got.Mode, ModeExclusive)
				expect.MustEqual(t, "number of its holders", len(got.Holders), 1)
				expect.Equal(t, "fence of its holder", got.Holders[0].Fence, 0)
				expect.Equal(t, "owner of its holder", got.Holders[0].Owner, "")
				if left := got.Holders[0].Until.Sub(got.Now); left > time.Minute {
					t.Errorf("lease of a plain client's lock: got %v, want 1m at most", left)
				}
				waiter := startWaiter(t, locks, "both", request, 1)
				expect.NoError(t, "Refresh", theirs.Refresh(ctx, time.Minute, nil))
				waiter.stillWaits(t)
				expect.NoError(t, "Release", theirs.Release(ctx))
				next := waiter.granted(t) // it polled
				rising(t, held.Fence(), next.Fence())
				release(t, next)
				if _, err := plain.Obtain(ctx, key, time.Minute, nil); err != nil {
					t.Fatalf("Obtain: got error %v, want none", err)
				}
				if _, err := locks.Break(ctx, "both", 0); err != nil {
					t.Fatalf("Break both: got error %v, want none", err)
				}
			}
		})
	}
}

// A former holder whose lock a plain client has taken since does not get it back by asking with its
// old token.
func TestOldTokenDoesNotMeetAPlainClientsLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	request := Request{Token: secret.New(), TTL: MinTTL}
	if _, err := locks.TryGrant(t.Context(), "old", request); err != nil {
		t.Fatalf("TryGrant old: got error %v, want none", err)
	}
	expect.Eventually(t, "the lease has ended", func() bool { return len(info(t, locks, "old").Holders) == 0 })
	if _, err := redislock.Obtain(t.Context(), server.Client(), locks.Key("old"), time.Minute, nil); err != nil {
		t.Fatalf("redislock.Obtain: got error %v, want none", err)
	}
	_, err := locks.TryGrant(t.Context(), "old", request)
	wantIs(t, err, ErrHeld)
	request.Wait = 20 * time.Millisecond
	_, err = locks.Grant(t.Context(), "old", request)
	wantIs(t, err, ErrHeld)
}

// The connection of a holder is cut: its context ends before another can hold, although no reply
// ever comes.
func TestContextOfTheHolderEndsBeforeAnotherCanHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var cut atomic.Bool
	proxy := redistest.StartProxy(t, server.Addr(), func([]byte) (redistest.Fate, func()) {
		if cut.Load() {
			return redistest.Swallow, nil
		}
		return redistest.Pass, nil
	})
	remote := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: 2 * time.Second}), Config{})
	near := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	for _, request := range []Request{{TTL: 5 * time.Second}, {TTL: 5 * time.Second, Mode: ModeShared}} {
		cut.Store(false)
		held := must(t, remote, "cut", request)
		next := startWaiter(t, near, "cut", Request{}, 1)
		cut.Store(true)
		heir := next.granted(t)
		if held.Context().Err() == nil || held.Validity() > 0 {
			t.Error("two hold at once")
		}
		wantIs(t, held.Err(), ErrLost, ErrDeadline)
		wantIs(t, context.Cause(held.Context()), ErrLost, keepalive.ErrDeadline)
		rising(t, held.Fence(), heir.Fence())
		release(t, heir)
		_ = held.Release(t.Context()) // it reaches no server
	}
}

// A subscription is lost just when the lock is handed over. The waiter learns of it when the
// connection is back.
func TestMessageMissedDuringAReconnectStallsNoWaiter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	for range 5 {
		held := must(t, locks, "missed", Request{})
		next := startWaiter(t, others, "missed", Request{}, 1)
		expect.NoError(t, "CLIENT KILL TYPE pubsub", server.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		release(t, held)
		release(t, next.granted(t))
	}
}

func TestStallOfAFreeLockHangsNoWaiter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hasty := storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 100 * time.Millisecond})
	locks := open(t, hasty, Config{Window: MinTTL})
	others := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{Window: MinTTL})
	for range 3 {
		expect.Eventually(t, "the hasty process has a connection, and knows the server", func() bool {
			_, err := hasty.Continuity(t.Context())
			return err == nil
		})
		server.Pause()
		next := wait(t, locks, "stall", Request{TTL: time.Second})
		resumed := time.AfterFunc(150*time.Millisecond, server.Resume)
		select {
		case lock := <-next.result:
			_ = lock.Release(t.Context()) // which may be too late for its store as well
		// The answer was late: the outcome is unknown, and the lock is given back. On a busy
		// machine the question may not have left.
		case err := <-next.err:
			if !errors.Is(err, redisstore.ErrUnknownOutcome) && !errors.Is(err, redisstore.ErrUnavailable) {
				t.Fatalf("Acquire while Redis stands still: got %v, want an unknown outcome, or a refusal", err)
			}
		}
		resumed.Stop()
		server.Resume()
		lock, err := others.Acquire(t.Context(), "stall", Request{})
		expect.MustEqual(t, "error of another process's Acquire after the stall", err, nil)
		release(t, lock)
	}
}

// Waiters keep waiting while Redis is restarted without data, and are all served.
func TestWaitersOutliveARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	held := must(t, locks, "restart", Request{})
	a, b := startWaiter(t, locks, "restart", Request{}, 1), startWaiter(t, others, "restart", Request{}, 2)
	server.RestartEmpty()
	var first, second *Lock
	select {
	case first = <-a.result:
		release(t, first)
		second = b.granted(t)
	case first = <-b.result:
		release(t, first)
		second = a.granted(t)
	}
	rising(t, held.Fence(), first.Fence(), second.Fence())
	release(t, second)
	wantIs(t, held.Release(t.Context()), ErrLost)
}

func TestOutageIsAClearError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	held := must(t, locks, "out", Request{})
	server.Kill()
	for _, request := range []Request{{}, {Mode: ModeShared}} {
		_, err := locks.Acquire(t.Context(), "out2", request)
		wantIs(t, err, redisstore.ErrUnavailable, redisstore.ErrRefused)
		if errors.Is(err, ErrHeld) {
			t.Errorf("Acquire without a server: got %v, want nothing about a holder", err)
		}
	}
	expect.Error(t, "Release without a server", held.Release(t.Context()), redisstore.ErrUnavailable)
}

// A grant without the acknowledgement of replicas that was asked for does not count, and is given
// back.
func TestGrantThatIsNotAcknowledgedDoesNotCount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), AckTimeout: 5 * time.Millisecond})
	locks, plain := open(t, store.WithAck(1), Config{}), open(t, store, Config{})
	for _, request := range []Request{{}, {Mode: ModeShared}} {
		_, err := locks.TryAcquire(t.Context(), "ack", request)
		wantIs(t, err, redisstore.ErrUnknownOutcome)
		release(t, must(t, plain, "ack", Request{}))
	}
}

// The reply to the first request is lost. The same token asked again gets the same grant.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var lose atomic.Bool
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte("eval")) && lose.CompareAndSwap(true, false) {
			return redistest.CutAfter, nil
		}
		return redistest.Pass, nil
	})
	locks := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL()}), Config{})
	for _, mode := range []Mode{ModeExclusive, ModeShared} {
		release(t, must(t, locks, "reply", Request{Mode: mode})) // the scripts are known
		a, err := locks.ask("reply", Request{Mode: mode})
		expect.NoError(t, "ask reply", err)
		lose.Store(true)
		_, err = locks.enter(t.Context(), a, "")
		wantIs(t, err, redisstore.ErrUnknownOutcome)
		granted := info(t, locks, "reply").Holders[0].Fence
		grant, err := locks.TryGrant(t.Context(), "reply", a.Request)
		if err != nil || grant.Fence != granted {
			t.Fatalf("%+v %v, want the fence %d", grant, err, granted)
		}
		expect.NoError(t, "Release", locks.Release(t.Context(), grant))
	}
}

// A key of a lock never stays for ever.
func TestEveryKeyOfALockExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	var held []*Lock
	for i, request := range []Request{{}, {Mode: ModeShared}, {Permits: 2}} {
		name := string(rune('a' + i))
		held = append(held, must(t, locks, name, request))
		startWaiter(t, locks, name, Request{}, 1)
	}
	expect.Eventually(t, "the names are listed", func() bool {
		names, _, err := locks.List(t.Context(), "", "", 10)
		return err == nil && len(names) == 3
	})
	keys, err := server.Client().Keys(t.Context(), "*").Result()
	if err != nil || len(keys) < 12 {
		t.Fatalf("KEYS: got %q and error %v, want 12 at least", keys, err)
	}
	for _, key := range keys {
		if left := server.Client().PTTL(t.Context(), key).Val(); left <= 0 || left > placeKept {
			t.Errorf("%s: %v left", key, left)
		}
	}
	for _, lock := range held {
		release(t, lock)
	}
}

// The recipe for a resource in Redis refuses a holder that was overtaken.
func TestCheckFenceRefusesAnOvertakenHolder(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		write := redisScript(CheckFence + "if not check_fence(KEYS[1], ARGV[1]) then return {'overtaken'} end redis.call('SET', KEYS[2], ARGV[2]) return {'ok'}")
		keys := []string{onstore.Key(store, "account", "ann", "fence"), onstore.Key(store, "account", "ann")}
		for _, row := range []struct {
			fence int64
			want  string
		}{{100, "ok"}, {100, "ok"}, {99, "overtaken"}, {101, "ok"}, {100, "overtaken"}, {1<<53 - 1, "ok"}, {1<<53 - 2, "overtaken"}} {
			reply, err := onstore.Run(t.Context(), store, write, keys, row.fence, "value")
			if err != nil || reply.Word() != row.want {
				t.Errorf("fence %d: %v %v, want %s", row.fence, reply, err, row.want)
			}
		}
	})
}

func TestMarkersLieInTheSlotsOfTheirLocks(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := storetest.Open(t, redisstore.Config{URL: cluster.URL()})
	locks := open(t, store, Config{AfterLoss: AfterLossWait, LongestTTL: MinTTL, Skew: time.Millisecond, Window: MinTTL})
	// on all of the nodes; keys of two slots would be refused
	for _, name := range []string{"a", "b", "c", "d"} {
		held, err := locks.Acquire(t.Context(), name, Request{})
		expect.NoError(t, "Acquire", err)
		release(t, held)
	}
}

// Within one process a release passes the whole grant on: the heir sends nothing before it holds.
// An heir in another process claims its own.
func TestReleasePassesTheGrantOnWithinAProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var entered atomic.Int64
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte("the-heir")) {
			entered.Add(1)
		}
		return redistest.Pass, nil
	})
	locks := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL()}), Config{})
	far := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	for _, request := range []Request{{Owner: "the-heir"}, {Owner: "the-heir", Mode: ModeShared, TTL: time.Minute}} {
		entered.Store(0)
		held := must(t, locks, "near", Request{})
		next := startWaiter(t, locks, "near", request, 1)
		last := startWaiter(t, far, "near", Request{}, 2)
		asked := entered.Load()
		release(t, held)
		heir := next.granted(t)
		if got := entered.Load(); asked == 0 || got != asked {
			t.Errorf("it asked %d times, and %d after the release", asked, got-asked)
		}
		shown := info(t, locks, "near").Holders[0]
		if shown.Fence != heir.Fence() || shown.Owner != "the-heir" || !shown.Since.Equal(heir.Since()) || shown.Until.Sub(heir.Since()) < heir.first.TTL-time.Second {
			t.Errorf("%+v of %+v", shown, heir.first)
		}
		if _, err := locks.Renew(t.Context(), heir.first); err != nil {
			t.Errorf("Renew: got error %v, want none", err)
		}
		last.stillWaits(t)
		release(t, heir)
		after := last.granted(t)
		rising(t, held.Fence(), heir.Fence(), after.Fence())
		release(t, after)
	}
}
