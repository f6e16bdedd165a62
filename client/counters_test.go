package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func (s *service) added(t testing.TB, key string, request client.CounterRequest) client.CounterRange {
	t.Helper()
	got, err := s.Add(t.Context(), key, request)
	must(t, fmt.Sprintf("Add to %s with %+v", key, request), err)
	return got
}

func (s *service) counterAt(t testing.TB, key string, want int64) {
	t.Helper()
	value, err := s.Counter(t.Context(), key)
	succeeds(t, "Counter "+key, err)
	expect.Equal(t, "Counter "+key, value, want)
}

// incr fails the test unless a counter is at that value after 1 was added.
func (s *service) incr(t testing.TB, key string, want int64) {
	t.Helper()
	value, err := s.Incr(t.Context(), key)
	succeeds(t, "Incr "+key, err)
	expect.Equal(t, "Incr "+key, value, want)
}

func (s *service) set(t testing.TB, key string, value int64, ttl time.Duration) {
	t.Helper()
	must(t, fmt.Sprintf("SetCounter %s to %d", key, value), s.SetCounter(t.Context(), key, value, client.SetCounterOptions{TTL: ttl, Back: true}))
}

func (s *service) counterRound(t *testing.T) {
	ctx := t.Context()
	_, err := s.Counter(ctx, "round")
	wantError(t, err, client.ErrNotFound)
	wantError(t, s.RemoveCounter(ctx, "round"), client.ErrNotFound)
	for want := range int64(3) {
		s.incr(t, "round", want+1)
	}
	got, err := s.IncrBy(ctx, "round", 10)
	succeeds(t, "IncrBy 10", err)
	expect.Equal(t, "IncrBy 10", got, client.CounterRange{Key: "round", First: 4, Last: 13})
	s.counterAt(t, "round", 13)
	s.set(t, "round", -5, 0)
	s.counterAt(t, "round", -5)
	expect.Equal(t, "the first value added to -5", s.added(t, "round", client.CounterRequest{}).First, -4)
	succeeds(t, "RemoveCounter", s.RemoveCounter(ctx, "round"))
	expect.Equal(t, "the value after the removal", s.added(t, "round", client.CounterRequest{TTL: 150 * time.Millisecond}).Last, 1)
	expect.Eventually(t, "the counter expires after 150 ms", func() bool { _, err := s.Counter(ctx, "round"); return errors.Is(err, client.ErrNotFound) })
	s.set(t, "round", 7, 100*time.Millisecond)
	expect.Eventually(t, "the counter expires after 100 ms", func() bool { _, err := s.Counter(ctx, "round"); return errors.Is(err, client.ErrNotFound) })
}

func (s *service) counterRepeated(t *testing.T) {
	for _, id := range []string{"order-1", `a "quoted\" id, with; more=1`, " ", `"order-1"`, "a,b", "~", strings.Repeat("x", 255)} {
		request := client.CounterRequest{RequestID: id, By: 3}
		first := s.added(t, "repeated", request)
		s.added(t, "repeated", client.CounterRequest{})
		again := s.added(t, "repeated", request)
		expect.Equal(t, fmt.Sprintf("the first value of the request %q, repeated", id), again.First, first.First)
		expect.Equal(t, fmt.Sprintf("the value of the request %q, repeated", id), again.Last, first.Last)
		request.By = 4
		_, err := s.Add(t.Context(), "repeated", request)
		wantError(t, err, client.ErrMismatch, "id", id)
	}
	s.counterAt(t, "repeated", 7*4)
}

func (s *service) counterRefused(t *testing.T) {
	ctx := t.Context()
	s.set(t, "full", math.MaxInt64-1, 0)
	_, err := s.IncrBy(ctx, "full", 2)
	wantError(t, err, client.ErrOverflow)
	s.incr(t, "full", math.MaxInt64)
	s.counterAt(t, "full", math.MaxInt64)
	s.set(t, "narrow", 99, 0)
	_, err = s.Add(ctx, "narrow", client.CounterRequest{Template: "{n:2}"})
	wantError(t, err, client.ErrOverflow)
	s.counterAt(t, "narrow", 99)
	_, err = s.Add(ctx, "narrow", client.CounterRequest{Limit: 100, By: 2})
	wantError(t, err, client.ErrLimit)
	s.counterAt(t, "narrow", 99)
	s.added(t, "limited", client.CounterRequest{Limit: 2, By: 2})
	s.added(t, "tries", client.CounterRequest{Limit: 2, TTL: time.Hour, AfterLoss: client.AfterLossStay, By: 1})
	for _, request := range []client.CounterRequest{
		{By: 1_000_001}, {TTL: time.Millisecond}, {Template: "{"}, {Template: "x"}, {Calendar: "orders"}, {Calendar: "{yyyy}", Zone: "Nowhere/At-all"}, {Zone: "UTC"},
		{Calendar: "{yyyyMMdd}", At: time.Now().AddDate(0, 0, 3)}, {Calendar: "{yyyy}", TTL: time.Hour}, {Template: "{n}", By: 1001}, {Limit: -1}, {AfterLoss: client.AfterLossStay}, {AfterLoss: "guess", Limit: 9, TTL: time.Hour}, {Calendar: "{yyyyMMdd}", Template: "{n}"},
	} {
		_, err := s.Add(ctx, "narrow", request)
		wantError(t, err, client.ErrInvalid, "request", request)
	}
	for _, err := range s.Counters(ctx, "a b") {
		wantError(t, err, client.ErrInvalid)
	}
}

func (s *service) counterDated(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	day := at.UTC().Format("20060102")
	for _, row := range []struct {
		request client.CounterRequest
		key     string
		numbers []string
	}{
		{client.CounterRequest{Calendar: "{yyyyMMdd}"}, "dated:" + day, nil},
		{client.CounterRequest{Template: "ORD-{yyyyMMdd}-{n:6}"}, "dated:" + day, []string{"ORD-" + day + "-000002"}},
		{client.CounterRequest{Template: "ORD-{yyyyMMdd}-{n:6}", By: 2}, "dated:" + day, []string{"ORD-" + day + "-000003", "ORD-" + day + "-000004"}},
		{client.CounterRequest{Template: "{yyyyMMdd}/{n}", Calendar: "{yyyy}"}, "dated:" + day[:4], []string{day + "/1"}},
		{client.CounterRequest{Template: "No {n}"}, "dated", []string{"No 1"}},
		{client.CounterRequest{Calendar: "{yyyyMMddHH}", Zone: "Asia/Tokyo"}, "dated:" + at.UTC().Add(9*time.Hour).Format("2006010215"), nil},
	} {
		row.request.At = at
		got := s.added(t, "dated", row.request)
		expect.Equal(t, fmt.Sprintf("the key of %+v", row.request), got.Key, row.key)
		expect.Equal(t, fmt.Sprintf("the numbers of %+v", row.request), got.Numbers, row.numbers)
	}
	s.counterAt(t, "dated:"+day, 4)
}

func (s *service) countersListed(t *testing.T) {
	var want []string
	for i := range 130 { // more than a page
		key := fmt.Sprintf("listed:%03d", i)
		want = append(want, key)
		s.added(t, key, client.CounterRequest{By: int64(i + 1)})
	}
	var keys []string
	for info, err := range s.Counters(t.Context(), "listed:") {
		must(t, "Counters", err)
		keys = append(keys, info.Key)
		expect.MustEqual(t, "one of Counters", info, api.ListedCounter{Key: info.Key, Value: new(int64(len(keys)))})
	}
	expect.Equal(t, "the keys of Counters", keys, want)
	for range s.Counters(t.Context(), "listed:") {
		break // the rest is not asked for
	}
	n := 0
	for range s.Counters(t.Context(), "no such") { // the error: a space is in no name
		n++
	}
	expect.Equal(t, "results of Counters that begin with no name", n, 1)
}

// A value that others have written, and that is no integer, is on the list with an error of its
// own.
func TestACounterThatIsNoIntegerIsListedAsThat(t *testing.T) {
	store := open(t, "embedded:")
	s := serve(t, store)
	s.added(t, "text", client.CounterRequest{})
	do(t, store, "redis.call('SET', KEYS[1], 'abc')", onstore.Key(store, "counter", "text"))
	listed := 0
	for info, err := range s.Counters(t.Context(), "") {
		listed++
		succeeds(t, "Counters", err)
		expect.Equal(t, "one of Counters", info, api.ListedCounter{Key: "text", Error: api.NotAnInteger})
	}
	_, err := s.Counter(t.Context(), "text")
	wantError(t, err, client.ErrNotAnInteger)
	_, err = s.Incr(t.Context(), "text")
	wantError(t, err, client.ErrNotAnInteger)
	expect.Equal(t, "counters listed", listed, 1)
}

// After a loss of everything nothing is added for a while, and callers get the time to wait. Then
// values go on.
func TestCountersOverTheLossOfAllState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holdOff = time.Minute
		s := bubbleWith(t, server.Config{Counters: counter.Config{HoldOff: holdOff}})
		before := s.added(t, "orders", client.CounterRequest{By: 42})
		loseAll(t, s.store)
		lost := time.Now()
		for {
			value, err := s.Incr(t.Context(), "orders")
			if err == nil {
				if value <= before.Last {
					t.Errorf("Incr after the loss: got %d, want more than %d", value, before.Last)
				}
				break
			}
			failure := wantError(t, err, client.ErrQuarantined)
			between(t, "the wait of the error", failure.Wait, time.Second, holdOff-time.Since(lost)+time.Second)
			expect.Equal(t, "whether asking again may help", failure.Retryable, true)
			time.Sleep(failure.Wait)
		}
		between(t, "how long nothing was added", time.Since(lost), holdOff, holdOff+time.Minute)
	})
}

// A service that refuses counters that have gone back does so until they are set.
func TestACounterThatHasGoneBackIsSetToGoOn(t *testing.T) {
	store := open(t, "embedded:")
	s := serveWith(t, server.Config{Store: store, Counters: counter.Config{AfterLoss: counter.AfterLossRefuse}})
	s.added(t, "orders", client.CounterRequest{By: 42})
	do(t, store, "redis.call('SET', KEYS[1], 7)", onstore.Key(store, "counter", "orders"))
	for range 2 {
		_, err := s.Incr(t.Context(), "orders")
		failure := wantError(t, err, client.ErrBehind)
		expect.Equal(t, "whether asking again may help", failure.Retryable, false)
		expect.Equal(t, "the wait of the error", failure.Wait, 0)
	}
	s.set(t, "orders", 100, 0)
	s.incr(t, "orders", 101)
}

// A counter goes back, and gets or loses its end, only where the caller says so.
func (s *service) counterBack(t *testing.T) {
	must(t, "SetCounter of a new counter", s.SetCounter(t.Context(), "back", 7, client.SetCounterOptions{TTL: time.Hour}))
	failure := wantError(t, s.SetCounter(t.Context(), "back", 6, client.SetCounterOptions{}), client.ErrPast)
	expect.Contains(t, "its detail", failure.Detail, "back is at 7")
	expect.Equal(t, "whether asking again may help", failure.Retryable, false)
	s.added(t, "back", client.CounterRequest{TTL: time.Hour})
	must(t, "SetCounter back", s.SetCounter(t.Context(), "back", 2, client.SetCounterOptions{Back: true}))
	s.incr(t, "back", 3)
	_, err := s.Add(t.Context(), "back", client.CounterRequest{TTL: time.Hour})
	wantError(t, err, client.ErrPermanent)
	s.incr(t, "back", 4)
}

// onCounters limits a fault to requests that add, and to so many of them; sent counts them all.
func onCounters(times int64, sent *atomic.Int64, with fault) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		return strings.HasPrefix(r.URL.Path, "/incr/") && sent.Add(1) <= times && with(w, r, service)
	}
}

func TestALostReplyOfACounterIsAnUnknownOutcomeAndIsNotSentTwice(t *testing.T) {
	for name, lose := range map[string]fault{"served": loseReply, "not served": hangUp, "cut off": cutOff, "proxy": says(502, "text/html", "bad gateway")} {
		t.Run(name, func(t *testing.T) {
			s := embedded(t)
			s.added(t, "orders", client.CounterRequest{}) // so that the connection is there
			var sent atomic.Int64
			s.proxy.disturb(onCounters(1, &sent, lose))
			_, err := s.Incr(t.Context(), "orders")
			wantError(t, err, client.ErrUnknownOutcome)
			expect.Equal(t, "how often it was sent", sent.Load(), 1)
			between(t, "the value after an unknown outcome", s.added(t, "orders", client.CounterRequest{}).Last, 2, 3)
		})
	}
}

// With a request id a reply that was lost is had by asking again: by the caller, or with Repeat by
// the client.
func TestALostReplyIsHadByARepeat(t *testing.T) {
	for name, lose := range map[string]fault{
		"served": loseReply, "not served": hangUp, "cut off": cutOff, "proxy": says(502, "text/html", "bad gateway"),
		"away": says(503, "application/problem+json", `{"code":"store-unavailable"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := embedded(t)
			s.added(t, "orders", client.CounterRequest{})
			var sent atomic.Int64
			s.proxy.disturb(onCounters(3, &sent, lose))
			expect.Equal(t, "Add 5, repeated", s.added(t, "orders", client.CounterRequest{Repeat: true, By: 5}), client.CounterRange{Key: "orders", First: 2, Last: 6})
			sent.Store(0)
			request := client.CounterRequest{RequestID: "order-1"}
			for i := 0; ; i++ {
				got, err := s.Add(t.Context(), "orders", request)
				if err == nil {
					expect.Equal(t, "the value of the request order-1", got.Last, 7)
					break
				}
				if i == 4 {
					t.Fatalf("Add with the request order-1, the fifth time: %v", err)
				}
			}
			s.counterAt(t, "orders", 7)
		})
	}
}

// Two that repeat do not get each other's values.
func TestEachCallThatRepeatsHasARequestIDOfItsOwn(t *testing.T) {
	s := embedded(t)
	for want := range int64(3) {
		expect.Equal(t, "Add, repeated", s.added(t, "orders", client.CounterRequest{Repeat: true}).Last, want+1)
	}
}

func TestARepeatEndsWithItsContextAndOnARefusal(t *testing.T) {
	var sent atomic.Int64
	refused := faced(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		sent.Add(1)
		api.NewProblem(api.CounterBehind, "").Write(w)
		return true
	})
	_, err := refused.Add(t.Context(), "orders", client.CounterRequest{Repeat: true})
	wantError(t, err, client.ErrBehind)
	expect.Equal(t, "how often what is refused was sent", sent.Load(), 1)
	ctx, cancel := context.WithCancel(t.Context())
	away := faced(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		cancel()
		api.NewProblem(api.StoreUnavailable, "").Write(w)
		return true
	})
	_, err = away.Add(ctx, "orders", client.CounterRequest{Repeat: true})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("Add whose context ends: got error %v, want %v or %v, by which of the two came first", err, context.Canceled, client.ErrUnavailable)
	}
}

// An answer of which a part is missing or impossible is none: its values may be another caller's.
func TestValuesThatCannotBeAreAnUnknownOutcome(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"key":"orders"}`, `{"key":"other","value":2,"first":1}`, `{"key":"orders","value":3,"first":1}`, `{"key":"orders","value":1,"first":2}`,
		`{"key":"orders:20261121","value":2,"first":1}`, `{"key":"orders","value":2,"first":1,"number":"A"}`, `{"key":"orders","value":"2","first":"1"}`, `null`, ``,
		`{"key":"orders","value":-9223372036854775808,"first":9223372036854775807}`,
	} {
		c := answering(t, 200, body)
		_, err := c.IncrBy(t.Context(), "orders", 2)
		wantError(t, err, client.ErrUnknownOutcome, "body", body)
		wantError(t, c.SetCounter(t.Context(), "orders", 5, client.SetCounterOptions{}), client.ErrUnknownOutcome, "body", body)
		_, err = c.Counter(t.Context(), "counts")
		expect.Error(t, "Counter, answered "+body, err, client.ErrUnavailable)
		for _, err := range c.Counters(t.Context(), "") {
			wantError(t, err, client.ErrUnavailable, "body", body)
		}
	}
	for _, body := range []string{`{"key":"orders:20261121","value":2,"first":1}`, `{"key":"orders:x","value":2,"first":1,"numbers":["A"]}`, `{"key":"invoices:x","value":2,"first":1,"numbers":["A","B"]}`} {
		c := answering(t, 200, body)
		_, err := c.Add(t.Context(), "orders", client.CounterRequest{By: 2, Template: "{n}"})
		wantError(t, err, client.ErrUnknownOutcome, "body", body)
	}
}

// A list whose next page begins no later than this one would never end.
func TestAListThatGoesBackEnds(t *testing.T) {
	c := answering(t, 200, `{"counters":[{"key":"a","value":1}],"pools":[],"locks":[],"next":"a"}`)
	ends := func(name string, count int, err error) {
		t.Helper()
		expect.Equal(t, "pages of "+name, count, 2)
		expect.Error(t, "the last page of "+name, err, client.ErrUnavailable)
	}
	count, last := 0, error(nil)
	for _, err := range c.Counters(t.Context(), "") {
		count, last = count+1, err
	}
	ends("counters", count, last)
	count = 1 // an empty page
	for _, err := range c.Pools(t.Context(), "") {
		count, last = count+1, err
	}
	ends("pools", count, last)
	count = 1
	for _, err := range c.Locks(t.Context(), "") {
		count, last = count+1, err
	}
	ends("locks", count, last)
}

func TestTagIsSetByTheClient(t *testing.T) {
	s := embedded(t)
	must(t, "SetSegment", s.SetSegment(t.Context(), "orders", 5001))
	ids, err := s.SegmentIDs(t.Context(), "orders", 1)
	if err != nil || ids[0] != 5001 {
		t.Errorf("SegmentIDs after the tag was set: got %v, %v; want 5001", ids, err)
	}
	for _, next := range []int64{0, -1, 5001} {
		wantError(t, s.SetSegment(t.Context(), "orders", next), client.ErrInvalid, "next", next)
	}
	for _, body := range []string{`{}`, `{"tag":"orders","next":"2"}`, `{"tag":"other","next":"1"}`} {
		wantError(t, answering(t, 200, body).SetSegment(t.Context(), "orders", 1), client.ErrUnknownOutcome, "body", body)
	}
}

func TestSegmentIDsOfTheService(t *testing.T) {
	s := embedded(t)
	var last int64
	for _, n := range []int{1, 2, 10_000, 1} {
		ids, err := s.SegmentIDs(t.Context(), "orders", n)
		if err != nil || len(ids) != n || !slices.IsSorted(ids) || ids[0] <= last {
			t.Fatalf("SegmentIDs, %d: got %d, %v, want them sorted and after %d", n, len(ids), err, last)
		}
		last = ids[n-1]
	}
	expect.Equal(t, "the last of 10,004 ids", last, 10_004)
	for _, n := range []int{0, -1, 10_001} {
		_, err := s.SegmentIDs(t.Context(), "orders", n)
		wantError(t, err, client.ErrInvalid, "n", n)
	}
	for _, body := range []string{`{}`, `{"ids":["1"]}`, `{"ids":["1","x"]}`, `{"ids":["1","-2"]}`} {
		c := answering(t, 200, body)
		_, err := c.SegmentIDs(t.Context(), "orders", 2)
		wantError(t, err, client.ErrUnavailable, "body", body)
	}
}
