package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestQuorumHasOneHolder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		field := startField(t, n)
		mine, others := field.near(t, grantAtOnce), field.near(t, grantAtOnce)
		held := mustQuorum(t, mine, "one", Request{TTL: time.Minute})
		everywhere(t, mine, held)
		_, err := others.TryAcquire(t.Context(), "one", Request{})
		wantOnly(t, err, ErrHeld)
		refused, _ := errors.AsType[*HeldError](err)
		if refused == nil || refused.Left <= time.Second || refused.Left > time.Minute || held.Since().Sub(refused.Since).Abs() > time.Minute {
			t.Errorf("TryAcquire of what is held since %v: got %+v, want that, give or take a minute, and up to a minute left", held.Since(), refused)
		}
		other := mustQuorum(t, others, "other", Request{})
		if err := mine.quorum.Stores()[0].Ping(t.Context()); err != nil || held.Err() != nil || other.Err() != nil || held.Name() != "one" {
			t.Error(err, held.Err(), other.Err(), held.Name())
		}
		release(t, held)
		wantIs(t, held.Err(), ErrReleased)
		wantIs(t, context.Cause(held.Context()), ErrReleased)
		next := mustQuorum(t, others, "one", Request{})
		rising(t, held.Fence(), next.Fence())
		release(t, held) // again
		release(t, next)
		release(t, other)
		nowhere(t, mine, "one")
		nowhere(t, mine, "other")
	}
}

func TestQuorumGrantsExclusiveLocksOnly(t *testing.T) {
	t.Parallel()
	locks := openQuorum(t, []string{"embedded:", "embedded:", "embedded:"}, redisstore.Config{}, grantAtOnce)
	for _, request := range []Request{{Mode: Shared}, {Mode: Permits, Capacity: 2}, {Capacity: 2}} {
		for _, acquire := range []func(context.Context, string, Request) (*Lock, error){locks.TryAcquire, locks.Acquire} {
			_, err := acquire(t.Context(), "mode", request)
			wantOnly(t, err, errQuorumMode)
			wantIs(t, err, ErrRequest)
		}
	}
	for _, request := range []Request{{Token: secret.New()}, {TTL: time.Millisecond}, {Wait: -1}, {Owner: "a b"}, {Permits: 2}, {Mode: "other"}} {
		_, err := locks.TryAcquire(t.Context(), "request", request)
		wantOnly(t, err, ErrRequest)
		if errors.Is(err, errQuorumMode) {
			t.Error(err)
		}
	}
	_, err := locks.TryAcquire(t.Context(), "a b", Request{})
	wantOnly(t, err, ErrRequest)
}

// On each server a lock is what it is for the clients of that server alone.
func TestQuorumAndClientsOfOneServerExcludeEachOther(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	locks := field.near(t, grantAtOnce)
	key := locks.each[0].Key("both")
	obtain := func(i int) (*redislock.Lock, error) {
		return redislock.New(field.servers[i].Client()).Obtain(t.Context(), key, time.Minute, nil)
	}
	held := mustQuorum(t, locks, "both", Request{})
	everywhere(t, locks, held)
	for i := range field.servers {
		_, err := obtain(i)
		wantIs(t, err, redislock.ErrNotObtained)
	}
	alone := open(t, locks.quorum.Stores()[2], Config{})
	queue := startWaiter(t, alone, "both", Request{}, 1)
	release(t, held)
	heir := queue.granted(t) // it waited at one server, and has the lock there
	free(t, locks.each[0], "both")
	first, err := obtain(0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = locks.TryAcquire(t.Context(), "both", Request{}) // two of three are taken
	wantOnly(t, err, ErrHeld)
	release(t, heir)
	next, err := locks.Acquire(t.Context(), "both", Request{}) // one is
	if err != nil {
		t.Fatal(err)
	}
	rising(t, held.Fence(), heir.Fence(), next.Fence())
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, next)
	nowhere(t, locks, "both")
}

func TestWaiterOfAQuorumIsServedOrGivesUp(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	mine, others := field.near(t, grantAtOnce), field.near(t, grantAtOnce)
	held, err := mine.Acquire(t.Context(), "wait", Request{Wait: 1}) // it asks once at least
	if err != nil {
		t.Fatal(err)
	}
	_, err = others.Acquire(t.Context(), "wait", Request{Wait: 50 * time.Millisecond})
	wantOnly(t, err, ErrHeld)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone, given := make(chan error, 1), errors.New("given up")
	go func() {
		_, err := others.Acquire(ctx, "wait", Request{})
		gone <- err
	}()
	served := make(chan *Lock, 1)
	go func() {
		lock, err := others.Acquire(t.Context(), "wait", Request{TTL: time.Second})
		if err != nil {
			t.Error(err)
		}
		served <- lock
	}()
	cancel(given)
	err = <-gone
	wantIs(t, err, ErrHeld, given)
	release(t, held)
	next := <-served
	rising(t, held.Fence(), next.Fence())
	release(t, next)
	nowhere(t, mine, "wait")
}

// Any minority may be dead or stand still: locks are granted, renewed and given back, and refused
// for the reason that counts.
func TestQuorumGoesOnWithoutAMinority(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		field := startField(t, n)
		mine, others := field.near(t, grantAtOnce), field.near(t, grantAtOnce)
		field.servers[0].Kill()
		if n == 5 {
			field.servers[1].Pause()
		}
		const ttl = 6 * time.Second
		held, err := mine.Acquire(t.Context(), "minority", Request{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		_, err = others.TryAcquire(t.Context(), "minority", Request{})
		wantOnly(t, err, ErrHeld)
		since := time.Now()
		expect.Eventually(t, "it is renewed", func() bool { return held.Err() != nil || held.Validity() > ttl-time.Since(since) })
		if held.Err() != nil {
			t.Fatal(held.Err())
		}
		release(t, held)
		next, err := others.Acquire(t.Context(), "minority", Request{})
		if err != nil {
			t.Fatal(err)
		}
		rising(t, held.Fence(), next.Fence())
		release(t, next)
		field.servers[min(1, n-3)].Resume()
	}
}

// Without a majority nothing is granted, and what a minority has granted is given back. Servers
// that refuse connections have done nothing; what servers that do not answer have done is unknown.
func TestQuorumWithoutAMajorityIsAClearError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		harm func(*field, int)
		// class is the error's, for a process that has not spoken to the servers before; nil = it
		// depends on how far a connection to the server comes.
		class error
	}{
		{"killed", func(f *field, i int) { f.servers[i].Kill() }, redisstore.ErrUnavailable},
		{"cut off", func(f *field, i int) { f.links[i].set(redistest.Swallow) }, redisstore.ErrUnknownOutcome},
		{"stopped", func(f *field, i int) { f.servers[i].Pause() }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			field := startField(t, 3)
			locks := field.far(t, grantAtOnce)
			held := mustQuorum(t, locks, "held", Request{TTL: time.Minute})
			for i := range 2 {
				row.harm(field, i)
			}
			urls := field.urls()
			if row.name == "cut off" {
				urls = field.linkURLs()
			}
			others := openQuorum(t, urls, redisstore.Config{Timeout: 500 * time.Millisecond}, grantAtOnce)
			brief := func(ctx context.Context, name string, request Request) (*Lock, error) {
				request.Wait = time.Nanosecond
				return others.Acquire(ctx, name, request)
			}
			for _, acquire := range []func(context.Context, string, Request) (*Lock, error){others.TryAcquire, others.Acquire, brief} {
				// it does not wait for servers that are away
				_, err := acquire(t.Context(), "none", Request{TTL: time.Minute})
				if row.class != nil {
					wantOnly(t, err, row.class)
				}
				if err == nil || errors.Is(err, ErrHeld) || errors.Is(err, context.DeadlineExceeded) != (row.name != "killed") {
					t.Error(err)
				}
				free(t, locks.each[2], "none") // what the third has granted is given back
			}
			if held.Err() != nil {
				t.Error(held.Err()) // it goes on until its deadline
			}
			wantIs(t, held.Release(t.Context()), redisstore.ErrUnknownOutcome)
		})
	}
}

// Each server may be of any kind that a store can be on.
func TestServersOfAQuorumMayBeOfAnyKind(t *testing.T) {
	t.Parallel()
	server, set, cluster := redistest.Start(t), redistest.StartSentinel(t, 1), redistest.StartCluster(t, 3, 0)
	locks := openQuorum(t, []string{server.URL(), set.URL(), cluster.URL()}, redisstore.Config{Timeout: answerLimit}, careful)
	// waits until a majority has lost nothing, and a renewal until the third has not
	held, err := locks.Acquire(t.Context(), "kinds", Request{})
	if err != nil {
		t.Fatal(err)
	}
	everywhere(t, locks, held)
	release(t, held)
	nowhere(t, locks, "kinds")
}
