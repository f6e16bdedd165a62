//go:build check

package locks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// waitedFor is the lock that processes in the role of a waiter wait for.
const waitedFor = "waited-for"

// A hang is a wait that outlasts the test on the busiest machine: the lease of a dead holder that
// had it for longer than the claim window, or fifteen windows, the time after which a waiter that
// does not poll is forgotten.
const (
	lineTTL    = time.Hour
	lineWindow = 5 * time.Second
	hang       = time.Minute
)

// line is a lock that is held, and those who wait for it.
type line struct {
	t      *testing.T
	server *redistest.Server
	locks  *fenced
	held   *lock.Lock
	n      int
	served chan error
}

func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{t: t, server: redistest.Start(t), served: make(chan error, 100)}
	var err error
	if l.locks, err = openFenced(t.Context(), redisstore.Config{URL: l.server.URL(), Timeout: hang}, lineWindow); err != nil {
		t.Fatalf("opening the locks: got error %v, want none", err)
	}
	t.Cleanup(func() { _ = l.locks.Close() })
	if l.held, err = l.locks.locks.Acquire(t.Context(), waitedFor, lock.Request{TTL: lineTTL}); err != nil {
		t.Fatalf("the first lock: got error %v, want none", err)
	}
	return l
}

// standForever waits for the lock in line, until the process is killed.
func standForever(ctx context.Context, url string) error {
	locks, err := openFenced(ctx, redisstore.Config{URL: url, Timeout: hang}, lineWindow)
	if err != nil {
		return err
	}
	_, err = locks.locks.Acquire(ctx, waitedFor, lock.Request{TTL: lineTTL})
	return errors.Join(err, locks.Close())
}

// process has a process wait at the end of the line.
func (l *line) process() *chaostest.Process {
	l.t.Helper()
	p := chaostest.StartRole(l.t, "waiter", chaostest.StoreVariable+"="+l.server.URL())
	l.joined()
	return p
}

// next is a request of a waiter. With a token it asks Redis at once, so that each has a place of
// its own in the line.
func (l *line) next() lock.Request {
	return lock.Request{TTL: lineTTL, Owner: fmt.Sprint("waiter-", l.n), Token: secret.New()}
}

// wait waits at the end of the line, and gives back what it is granted.
func (l *line) wait(ctx context.Context, served chan<- error) {
	l.t.Helper()
	request := l.next()
	go func() { served <- takeAndRelease(ctx, l.locks.locks, waitedFor, request) }()
	l.joined()
}

func takeAndRelease(ctx context.Context, locks *lock.Locks, name string, request lock.Request) error {
	held, err := locks.Acquire(ctx, name, request)
	if err != nil {
		return err
	}
	return held.Release(context.WithoutCancel(ctx))
}

func (l *line) joined() {
	l.t.Helper()
	l.n++
	l.waits(l.n)
}

// waits waits until that many wait.
func (l *line) waits(n int) {
	l.t.Helper()
	chaostest.Await(l.t, time.Minute, func() string {
		info, err := l.locks.locks.Get(l.t.Context(), waitedFor)
		if err != nil || info.Queue != n {
			return fmt.Sprintf("%d wait, want %d; %v", info.Queue, n, err)
		}
		return ""
	})
}

// release gives the lock back, and tells how long it took until that many were served.
func (l *line) release(n int) {
	l.t.Helper()
	start := time.Now()
	expect.NoError(l.t, "Release", l.held.Release(l.t.Context()))
	for range n {
		select {
		case err := <-l.served:
			if err != nil {
				l.t.Fatalf("a waiter in line: got error %v, want the lock", err)
			}
		case <-time.After(hang):
			l.t.Fatalf("a waiter was not served within %v", hang)
		}
	}
	l.t.Logf("%d served within %v", n, time.Since(start).Round(time.Millisecond))
}

// Waiters at the head and in the middle are dead: their processes were killed, or stand still, and
// then they still listen.
func TestDeadWaitersStallNobody(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*chaostest.Process){"killed": (*chaostest.Process).Kill, "stopped": (*chaostest.Process).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t)
			head := l.process()
			l.wait(t.Context(), l.served)
			middle := l.process()
			l.wait(t.Context(), l.served)
			end(head)
			end(middle)
			l.waits(4) // whatever they were about to ask before has been answered
			l.release(2)
		})
	}
}

// Waiters give up by the dozen while the lock is handed from one to the next. All are gone
// afterwards, and who still waits is served.
func TestBurstsOfCancelledWaitersStallNobody(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	ctx, cancel := context.WithCancel(t.Context())
	const burst = 60
	for range burst {
		l.wait(ctx, l.served)
	}
	patient := make(chan error, 1)
	l.wait(t.Context(), patient)
	go cancel()
	expect.NoError(t, "Release", l.held.Release(t.Context()))
	select {
	case err := <-patient:
		if err != nil {
			t.Fatalf("the waiter that stays: got error %v, want the lock", err)
		}
	case <-time.After(hang):
		t.Fatal("who still waits was not served")
	}
	for range burst {
		if err := <-l.served; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, lock.ErrLost) {
			t.Errorf("a waiter that gave up: got error %v, want a cancelled or a lost lock", err)
		}
	}
	l.waits(0)
}

// Names that are locked once leave nothing behind but their fences, and those for a minute.
func TestShortLivedNamesLeaveNoKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks, err := openFenced(t.Context(), redisstore.Config{URL: server.URL(), Timeout: time.Minute}, window)
	expect.NoError(t, "opening the locks", err)
	defer locks.Close()
	next := make(chan int)
	var late atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := range next {
				err := once(t.Context(), locks.locks, i)
				// on a machine that stands still for longer than a lease
				if errors.Is(err, lock.ErrLost) || tellsNothing(err) {
					late.Add(1)
				} else if err != nil {
					t.Errorf("a name that is locked once: got error %v, want none", err)
				}
			}
		})
	}
	for i := range *names {
		next <- i
	}
	close(next)
	all.Wait()
	if late := int(late.Load()); late > *names/2 {
		t.Errorf("%d of %d names were lost: this machine is too busy to say anything", late, *names)
	}
	chaostest.Await(t, time.Minute, func() string { return unexpected(t.Context(), server, *names) })
	if *names > 20_000 { // that takes its minute
		chaostest.Await(t, 2*time.Minute, func() string {
			if size := server.Client().DBSize(t.Context()).Val(); size > 0 {
				return fmt.Sprintf("%d keys are left", size)
			}
			return ""
		})
	}
}

// unexpected finds keys, among some of a server's, that are no fences or stay for longer than
// those.
func unexpected(ctx context.Context, server *redistest.Server, names int) (complaint string) {
	if size := server.Client().DBSize(ctx).Val(); size > int64(names) {
		return fmt.Sprintf("%d keys of %d names", size, names)
	}
	keys := server.Client().Scan(ctx, 0, "*", 1000).Iterator()
	for checked := 0; keys.Next(ctx) && checked < 2000; checked++ {
		left, err := server.Client().PTTL(ctx, keys.Val()).Result()
		if err != nil || left == -1 || left > time.Minute+ttl || !strings.HasSuffix(keys.Val(), "fence") {
			return fmt.Sprintf("%s stays for %v, %v", keys.Val(), left, err)
		}
	}
	if err := keys.Err(); err != nil {
		return err.Error()
	}
	return ""
}

// once locks a name in one of the modes, now and then with a waiter.
func once(ctx context.Context, locks *lock.Locks, i int) error {
	name := fmt.Sprintf("short-%d", i)
	request := []lock.Request{{}, {Mode: lock.ModeShared}, {Permits: capacity}}[i%3]
	request.TTL = ttl
	held, err := locks.Acquire(ctx, name, request)
	if err != nil {
		return err
	}
	if i%50 > 0 {
		return held.Release(ctx)
	}
	waiter := make(chan error, 1)
	go func() { waiter <- takeAndRelease(ctx, locks, name, lock.Request{TTL: ttl}) }()
	return errors.Join(held.Release(ctx), <-waiter)
}
