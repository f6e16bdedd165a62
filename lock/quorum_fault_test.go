package lock

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The connections of a holder are cut, in any way: its context ends before another can hold,
// although no reply ever comes.
func TestContextOfAQuorumsHolderEndsBeforeAnotherCanHold(t *testing.T) {
	t.Parallel()
	for _, fate := range []redistest.Fate{redistest.Swallow, redistest.CutBefore, redistest.CutAfter} {
		field := startField(t, 3)
		remote, near := field.far(t, grantAtOnce), field.near(t, grantAtOnce)
		held := mustQuorum(t, remote, "cut", Request{TTL: 3 * time.Second})
		everywhere(t, near, held)
		for _, link := range field.links {
			link.set(fate)
			link.SetDeaf(fate == redistest.Swallow)
		}
		// its requests are still done, unless nothing arrives at all
		if fate == redistest.CutAfter {
			<-held.Done()
			for _, link := range field.links {
				link.set(redistest.CutBefore)
			}
		}
		heir, err := near.Acquire(t.Context(), "cut", Request{})
		if err != nil {
			t.Fatal(err)
		}
		if held.Context().Err() == nil || held.Validity() > 0 {
			t.Error("two hold at once")
		}
		wantIs(t, held.Err(), ErrLost, ErrDeadline)
		rising(t, held.Fence(), heir.Fence())
		release(t, heir)
		_ = held.Release(t.Context()) // it reaches no server
	}
}

// The answers of servers are lost, in each of the steps: those of a minority change nothing.
// Without a majority's the lock is not held, and is given back where that is known.
func TestLostAnswersLeaveNoLockBehind(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	locks, others := field.far(t, grantAtOnce), field.near(t, grantAtOnce)
	release(t, mustQuorum(t, locks, "known", Request{})) // the scripts are
	for lost := range 4 {
		for _, raising := range []bool{false, true} {
			for i, link := range field.links[:lost] {
				fate := []redistest.Fate{redistest.CutAfter, redistest.CutBefore}[i%2]
				if link.setRaise(redistest.CutAfter); !raising {
					link.set(fate)
					link.setRaise(redistest.Pass)
				}
			}
			name := fmt.Sprintf("lost-%d-%v", lost, raising)
			held, err := locks.TryAcquire(t.Context(), name, Request{TTL: time.Minute})
			for _, link := range field.links {
				link.set(redistest.Pass)
				link.setRaise(redistest.Pass)
			}
			switch {
			case lost < 2:
				if err != nil {
					t.Fatalf("%d answers lost: %v", lost, err)
				}
				release(t, held)
				nowhere(t, others, name)
			case raising: // everything else was answered, so all of it was given back
				wantOnly(t, err, redisstore.ErrUnavailable)
				nowhere(t, others, name)
			default:
				wantOnly(t, err, redisstore.ErrUnknownOutcome)
			}
		}
	}
}

// A lock counts from before the first request for it was sent: the time that a slow server takes is
// gone from it.
func TestValidityCountsFromBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	locks := openQuorum(t, field.urls(), redisstore.Config{Timeout: patient}, grantAtOnce)
	release(t, mustQuorum(t, locks, "known", Request{})) // the scripts are
	for _, server := range field.servers[:2] {
		server.Pause()
	}
	const ttl = time.Hour
	acquired := make(chan *Lock, 1)
	go func() {
		held, err := locks.TryAcquire(t.Context(), "slow", Request{TTL: ttl})
		if err != nil {
			t.Error(err)
		}
		acquired <- held
	}()
	expect.Eventually(t, "the third has granted it", func() bool { return len(info(t, locks.each[2], "slow").Holders) == 1 })
	asked := time.Now()
	time.Sleep(50 * time.Millisecond)
	gone := time.Since(asked)
	for _, server := range field.servers[:2] {
		server.Resume()
	}
	held := <-acquired
	if held == nil {
		return
	}
	if valid := held.Validity(); valid > ttl-locks.margin(ttl)-gone {
		t.Errorf("valid for %v, although an answer took %v", valid, gone)
	}
	release(t, held)
}

// A server is so slow that the lock is given back before it has been asked for there: the release
// waits for its turn, and leaves nothing there either.
func TestReleaseDoesNotOvertakeTheRequest(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	servers, near := field.servers, field.near(t, grantAtOnce)
	var slow atomic.Bool
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	proxy := redistest.StartProxy(t, servers[2].Addr(), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte("\r\neval")) && slow.CompareAndSwap(true, false) {
			asked <- struct{}{}
			<-answer
		}
		return redistest.Pass, nil
	})
	locks := openQuorum(t, []string{servers[0].URL(), servers[1].URL(), proxy.URL()}, redisstore.Config{Timeout: patient}, grantAtOnce)
	release(t, mustQuorum(t, locks, "known", Request{})) // the scripts are
	nowhere(t, locks, "known")
	slow.Store(true)
	held := mustQuorum(t, locks, "overtaken", Request{TTL: time.Hour})
	<-asked
	release(t, held)
	close(answer)
	if err := locks.quorum.Close(); err != nil { // waits for what is under way
		t.Error(err)
	}
	nowhere(t, near, "overtaken")
}
