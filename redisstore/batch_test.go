package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// slow is a call that keeps its server busy for a while, so that those behind it gather.
var slow = script("slow", "for _ = 1, 8000000 do end return {'ok', '0'}", false)

// gathered starts calls behind one that keeps the server busy, and waits for all.
func gathered(t *testing.T, store *redisstore.Store, calls int, call func(i int)) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := number(t.Context(), store, slow, "x"); err != nil {
			t.Errorf("the call that keeps the server busy: got error %v, want none", err)
		}
	})
	for i := range calls {
		all.Go(func() { call(i) })
	}
	all.Wait()
}

func TestCallsInFlightShareRoundTrips(t *testing.T) {
	server := redistest.Start(t)
	proxy := between(t, server.Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 4)
	proxy.runs.Store(0)
	var seen history
	gathered(t, store, 200, func(int) {
		n, err := bumped(t.Context(), store, "x")
		expect.Error(t, "adding one to a record", err, nil)
		seen.add(n)
	})
	if count, largest := seen.unique(t); count != 200 || largest != 200 {
		t.Errorf("%d values up to %d", count, largest)
	}
	if trips := proxy.runs.Load(); trips > 50 {
		t.Errorf("%d requests for 201 calls", trips)
	}
}

// A lone caller's call goes out by itself: one request each, and nothing waits for company.
func TestLoneCallerSendsItsOwnCall(t *testing.T) {
	server := redistest.Start(t)
	proxy := between(t, server.Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 1)
	proxy.runs.Store(0)
	before := runtime.NumGoroutine()
	for i := range int64(100) {
		mustBump(t, store, "x", i+1)
	}
	expect.Equal(t, "requests of 100 calls", proxy.runs.Load(), 100)
	expect.Eventually(t, "no goroutine came to stay", func() bool { return runtime.NumGoroutine() <= before })
}

func TestCallsOfOnePipelineHaveTheirOwnAnswers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		if _, err := onstore.Run(t.Context(), store, script("list", "redis.call('RPUSH', KEYS[1], 'a') return {'ok'}",
			false), []string{onstore.Key(store, "test", "{list")}); err != nil {
			t.Fatalf("Run: got error %v, want none", err)
		}
		var all sync.WaitGroup
		for i := range 120 {
			all.Go(func() {
				switch i % 4 {
				case 0:
					_, err := number(t.Context(), store, bump, "{list")
					if !errors.Is(err, redisstore.ErrWrongType) {
						t.Errorf("a wrong type: %v", err)
					}
				case 1: // a script that the server does not know yet
					fresh := script(fmt.Sprint("fresh", i), fmt.Sprintf("return {'ok', '%d'}", i), false)
					if n, err := number(t.Context(), store, fresh, "y"); err != nil || n != int64(i) {
						t.Errorf("call %d got %d, %v", i, n, err)
					}
				case 2:
					if n, err := bumped(t.Context(), store, fmt.Sprint("own", i)); err != nil || n != 1 {
						t.Errorf("call %d got %d, %v", i, n, err)
					}
				default:
					if n, err := number(t.Context(), store, peek, "z"); err != nil || n != 0 {
						t.Errorf("a read got %d, %v", n, err)
					}
				}
			})
		}
		all.Wait()
	})
}

// A caller that gives up before its pipeline is sent is told that nothing was done, and it is true;
// one that gives up after that is told that it is unknown.
func TestCallerThatLeaves(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL()+"?pool_size=20", nil)
	warm(t, store, 40)
	server.Pause()
	var all sync.WaitGroup
	var uncertain, certain atomic.Int64
	for range 400 { // more than all pipelines together take
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), brief)
			defer cancel()
			_, err := bumped(ctx, store, "x")
			inClass(t, err)
			if errors.Is(err, redisstore.ErrUnknownOutcome) {
				uncertain.Add(1)
			} else {
				certain.Add(1)
			}
		})
		if uncertain.Load() == 0 {
			time.Sleep(time.Millisecond) // pipelines leave with few calls, until none is free
		}
	}
	all.Wait()
	server.Resume()
	expect.Eventually(t, "what was sent has run", func() bool { _, err := bumped(t.Context(), store, "y"); return err == nil })
	ran := counted(t, store, "x")
	if ran > uncertain.Load() || certain.Load() == 0 {
		t.Errorf("%d ran; %d may have, %d did not", ran, uncertain.Load(), certain.Load())
	}
}

// All calls of a pipeline that too few replicas confirmed hear so, and the master has their writes.
func TestCallsOfOnePipelineShareTheAcknowledgement(t *testing.T) {
	t.Parallel()
	store, set := replicated(t)
	both := store.WithAck(2)
	patient := open(t, set.URL(), func(c *redisstore.Config) { c.Ack, c.AckTimeout = 2, 30*time.Second })
	warm(t, patient, 4)
	gathered(t, patient, 40, func(int) {
		if _, err := bumped(t.Context(), patient, "x"); err != nil {
			t.Errorf("with both replicas: %v", err)
		}
	})
	set.Replicas()[0].Pause()
	gatherErr := make(chan error, 40)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			_, err := bumped(t.Context(), both, "x")
			gatherErr <- err
		})
	}
	all.Wait()
	close(gatherErr)
	for err := range gatherErr {
		shortfall(t, err, 1, 2)
	}
	expect.Equal(t, "calls that ran at the master", counted(t, store, "x"), 80)
}

// A pipeline that hangs holds up no call for long: others go out beside it.
func TestPipelineThatHangsIsOvertaken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := between(t, server.Addr())
	store := open(t, proxy.URL(), nil)
	warm(t, store, 1)
	proxy.runs.Store(0)
	proxy.set(swallow)
	stuck := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		_, err := bumped(ctx, store, "x")
		stuck <- err
	}()
	expect.Eventually(t, "the first call was swallowed", func() bool { return proxy.runs.Load() == 1 })
	proxy.set(pass)
	mustBump(t, store, "y", 1)
	select {
	case err := <-stuck:
		t.Errorf("the first call ended first: %v", err)
	default:
		unknown(t, <-stuck)
	}
}

var echo = script("echo", "return {'ok', ARGV[1]}", true)

// Callers that leave at any moment, and a server that is too slow at times, must not bring one
// caller the answer of another: what a call needs is used again.
func TestNobodyHasTheAnswerOfAnother(t *testing.T) {
	store := open(t, redistest.Start(t).URL(), func(c *redisstore.Config) { c.Timeout = 50 * time.Millisecond })
	expect.Eventually(t, "a connection within the short timeout", func() bool { return store.Ping(t.Context()) == nil })
	ended := make(chan struct{})
	var answers, left atomic.Int64
	var all sync.WaitGroup
	for caller := range 32 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.N(6))*time.Millisecond)
				asked := fmt.Sprint(caller, "-", i)
				reply, err := onstore.Run(ctx, store, echo, []string{onstore.Key(store, "test", "x")}, asked)
				cancel()
				switch {
				case err != nil:
					left.Add(1)
				case reply[1] != asked:
					t.Errorf("%s was answered %s", asked, reply[1])
					return
				default:
					answers.Add(1)
				}
			}
		})
	}
	// which takes a busy machine longer
	enough := func() bool { return answers.Load() >= 100 && left.Load() >= 100 }
	begun := time.Now()
	for n := 0; n < 20 || !enough() && time.Since(begun) < patience; n++ {
		_, _ = number(t.Context(), store, slow, "x") // it may take longer than a call may
	}
	close(ended)
	all.Wait()
	if !enough() {
		t.Errorf("%d answers, and %d left", answers.Load(), left.Load())
	}
}
