package counter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// between is a proxy that shows each request with an INCRBY or a script of counters to judge.
func between(t testing.TB, target string, judge func(request []byte) redistest.Fate) *redistest.Proxy {
	t.Helper()
	return redistest.StartProxy(t, target, func(request []byte) (redistest.Fate, func()) { return judge(request), nil })
}

func incrbys(request []byte) int { return bytes.Count(request, []byte("\r\nincrby\r\n")) }

// gate holds INCRBYs back one by one.
type gate struct {
	arrived chan int // how many commands came in a request
	open    chan redistest.Fate
	shut    atomic.Bool
}

func newGate(t testing.TB, target string) (*gate, *redistest.Proxy) {
	g := &gate{arrived: make(chan int, 1000), open: make(chan redistest.Fate)}
	proxy := between(t, target, func(request []byte) redistest.Fate {
		n := incrbys(request)
		if n == 0 || !g.shut.Load() {
			return redistest.Pass
		}
		g.arrived <- n
		return <-g.open
	})
	return g, proxy
}

func TestOneINCRBYOfAKeyIsUnderWay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, proxy := newGate(t, server.Addr())
	c := process(t, proxy.URL(), func(c *redisstore.Config, _ *counter.Config) { c.Timeout = patience })
	c.gets(t, "k", 1)
	c.gets(t, "other", 1)
	g.shut.Store(true)
	var got handedOut
	var all sync.WaitGroup
	add := func() { all.Go(func() { got.add(c.Add(t.Context(), "k", counter.Request{})) }) }
	add()
	expect.Equal(t, "INCRBYs in the first request", <-g.arrived, 1)
	for range 50 {
		add()
	}
	other := make(chan error, 1)
	// has a place of its own: it is sent while the first hangs
	go func() { _, err := c.Incr(t.Context(), "other"); other <- err }()
	<-g.arrived
	g.open <- redistest.Pass
	g.open <- redistest.Pass
	sent := 0
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	// the other key's name may be noted on the way of an INCRBY that is held back: that call ends
	// after this loop
	for over := false; !over; {
		select {
		case n := <-g.arrived:
			if sent++; n != 1 {
				t.Errorf("%d INCRBYs of one key at once", n)
			}
			if len(g.arrived) > 0 {
				t.Error("another one while this is under way")
			}
			g.open <- redistest.Pass
		case <-done:
			over = true
		}
	}
	expect.Error(t, "Incr of the other key", <-other, nil)
	if largest := got.once(t); largest != 52 || sent > 10 {
		t.Errorf("51 calls came to %d in %d more INCRBYs; %d failed: %v", largest, sent, len(got.failed), errors.Join(got.failed...))
	}
	c.want(t, "k", 52)
}

func TestCallerThatGivesUpLeavesAGap(t *testing.T) {
	t.Parallel()
	g, proxy := newGate(t, redistest.Start(t).Addr())
	c := process(t, proxy.URL(), func(c *redisstore.Config, _ *counter.Config) { c.Timeout = patience })
	c.gets(t, "k", 1)
	g.shut.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan counter.Range, 3)
	call := func(ctx context.Context, by int64) chan error {
		failed := make(chan error, 1)
		go func() {
			r, err := c.IncrBy(ctx, "k", by)
			if err == nil {
				results <- r
			}
			failed <- err
		}()
		return failed
	}
	first := call(t.Context(), 1)
	<-g.arrived
	second := call(ctx, 10)
	cancel() // it waits, or has ended before
	if err := <-second; !errors.Is(err, context.Canceled) || errors.Is(err, redisstore.ErrRefused) == errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("Add whose context ended: got error %v, want %v that is either refused or unknown", err, context.Canceled)
	}
	third := call(t.Context(), 3)
	g.shut.Store(false)
	g.open <- redistest.Pass
	expect.NoError(t, "all of them", errors.Join(<-first, <-third))
	a, b := <-results, <-results
	if a.First > b.First {
		a, b = b, a
	}
	expect.Equal(t, "the first range", a, counter.Range{First: 2, Last: 2})
	if b.Last-b.First != 2 || b.First != 3 && b.First != 13 {
		t.Errorf("the second range: got %+v, want three values from 3 on, or from 13 on", b)
	}
	c.gets(t, "k", b.Last+1)
}

func TestMergedCallsThatWouldOverflowGoOneByOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, proxy := newGate(t, server.Addr())
	c := process(t, proxy.URL(), func(c *redisstore.Config, _ *counter.Config) { c.Timeout = patience })
	c.put(t, "k", "SET", "9223372036854775800")
	g.shut.Store(true)
	type answer struct {
		counter.Range

		err error
	}
	answers := make(chan answer)
	add := func(by int64) {
		go func() {
			r, err := c.IncrBy(t.Context(), "k", by)
			answers <- answer{r, err}
		}()
	}
	add(1)
	<-g.arrived
	for _, by := range []int64{5, 100, 3, 1, 1} {
		add(by)
	}
	g.shut.Store(false)
	g.open <- redistest.Pass
	var got handedOut
	refused := 0
	for range 6 {
		a := <-answers
		if a.err != nil {
			wantRefused(t, a.err, counter.ErrOverflow)
			refused++
			continue
		}
		got.add(a.Range, nil)
	}
	largest := got.once(t)
	if refused == 0 || refused > 3 || largest < math.MaxInt64-2 {
		t.Errorf("%d refused, the largest is %d", refused, largest)
	}
	c.want(t, "k", largest)
}

// Calls with a TTL do not wait for calls without one, and are refused alone.
func TestTTLThatAConcurrentCallAsksForIsRefusedAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, proxy := newGate(t, server.Addr())
	c := process(t, proxy.URL(), func(c *redisstore.Config, _ *counter.Config) { c.Timeout = patience })
	c.gets(t, "k", 1)
	g.shut.Store(true)
	errs := make(chan error)
	add := func() {
		_, err := c.Incr(t.Context(), "k")
		errs <- err
	}
	go add()
	<-g.arrived
	go add()
	expect.Eventually(t, "it waits", func() bool { return counter.Waiting(c.Counters, "k") == 1 })
	_, err := c.Add(t.Context(), "k", counter.Request{TTL: time.Hour})
	wantRefused(t, err, counter.ErrPermanent)
	g.shut.Store(false)
	g.open <- redistest.Pass
	expect.NoError(t, "the calls without a TTL", errors.Join(<-errs, <-errs))
	c.want(t, "k", 3)
}

// Calls with a TTL that come while one is under way become one addition.
func TestCallsWithATTLAreMerged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	arrived, open := make(chan int, 1000), make(chan redistest.Fate)
	var shut atomic.Bool
	proxy := between(t, server.Addr(), func(request []byte) redistest.Fate {
		if shut.Load() && bytes.Contains(request, []byte("\r\n3600000\r\n")) {
			arrived <- 1
			return <-open
		}
		return redistest.Pass
	})
	c := process(t, proxy.URL(), func(c *redisstore.Config, _ *counter.Config) { c.Timeout = patience })
	var got handedOut
	var all sync.WaitGroup
	add := func() { all.Go(func() { got.add(c.Add(t.Context(), "k", counter.Request{By: 2, TTL: time.Hour})) }) }
	add()
	all.Wait()
	shut.Store(true)
	add()
	<-arrived
	for range 50 {
		add()
	}
	expect.Eventually(t, "they wait", func() bool { return counter.Waiting(c.Counters, "k") == 50 })
	open <- redistest.Pass
	<-arrived
	shut.Store(false)
	open <- redistest.Pass
	all.Wait()
	expect.Equal(t, "the largest value of 52 calls by 2", got.once(t), 104)
	expect.Equal(t, "requests besides these two", len(arrived), 0)
}

func TestLostReplyIsUnknownAndTheNextCallGoesOn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var fate atomic.Int32
	proxy := between(t, server.Addr(), func(request []byte) redistest.Fate {
		if incrbys(request) > 0 {
			return redistest.Fate(fate.Swap(int32(redistest.Pass)))
		}
		return redistest.Pass
	})
	c := process(t, proxy.URL())
	c.gets(t, "k", 1)
	for i, which := range []redistest.Fate{redistest.CutAfter, redistest.CutBefore} {
		fate.Store(int32(which))
		_, err := c.Incr(t.Context(), "k")
		if !errors.Is(err, redisstore.ErrUnknownOutcome) || errors.Is(err, redisstore.ErrRefused) || !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
		c.gets(t, "k", int64(3+i)) // 2 is a gap
	}
}

func TestRequestThatIsRepeatedOverALostReplyAddsOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var cut atomic.Bool
	proxy := between(t, server.Addr(), func(request []byte) redistest.Fate {
		if strings.Contains(string(request), ":request:") && cut.Swap(false) {
			return redistest.CutAfter
		}
		return redistest.Pass
	})
	c, other := process(t, proxy.URL()), process(t, server.URL())
	c.gets(t, "k", 1)
	c.incr(t, "k", 1, "first") // the script is known
	cut.Store(true)
	request := counter.Request{By: 5, RequestID: "id"}
	if _, err := c.Add(t.Context(), "k", request); !errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	for _, p := range []counters{c, other, c} {
		if got, err := p.Add(t.Context(), "k", request); err != nil || got != (counter.Range{First: 3, Last: 7}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	c.gets(t, "k", 8)
}

func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	g, proxy := newGate(t, redistest.Start(t).Addr())
	store := storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: patience})
	c := counter.New(store, counter.Config{})
	if _, err := c.Incr(t.Context(), "k"); err != nil {
		t.Fatalf("Incr k: got error %v, want none", err)
	}
	g.shut.Store(true)
	answered := make(chan int64, 2)
	add := func(ctx context.Context) {
		value, _ := c.Incr(ctx, "k")
		answered <- value
	}
	go add(t.Context())
	<-g.arrived
	waiting, giveUp := context.WithCancel(t.Context())
	go add(waiting)
	expect.Eventually(t, "the second call waits", func() bool { return counter.Waiting(c, "k") == 1 })
	giveUp()
	<-answered
	g.open <- redistest.Pass
	<-answered
	<-g.arrived // the values of the caller that has given up
	closed := make(chan struct{})
	go func() { _ = c.Close(); close(closed) }()
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case <-closed:
		t.Error("it is closed while an INCRBY is under way")
	default:
	}
	g.open <- redistest.Pass
	<-closed
}
