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
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// toldOfCounters is what each problem of the counter endpoints is.
var toldOfCounters = map[wire.Code]error{
	"not-an-integer":               client.ErrNotAnInteger,
	"counter-overflow":             client.ErrOverflow,
	"counter-behind":               client.ErrBehind,
	"pool-quarantined":             client.ErrQuarantined,
	"idempotency-payload-mismatch": client.ErrMismatch,
	"idempotency-key-malformed":    client.ErrInvalidRequest,
	"invalid-request":              client.ErrInvalidRequest,
	"invalid-name":                 client.ErrInvalidRequest,
	"not-found":                    client.ErrNotFound,
	"store-unavailable":            client.ErrUnavailable,
	"outcome-unknown":              client.ErrUnknownOutcome,
}

func TestEveryCodeOfACounterIsTold(t *testing.T) {
	for code, want := range toldOfCounters {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { wire.NewProblem(code, "").Write(w) })))
		_, err := c.Incr(t.Context(), "orders")
		if said := wantError(t, err, want); said.Code != string(code) {
			t.Errorf("%s: %+v", code, said)
		}
	}
}

func TestCounters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, store)
		t.Run("added to, read, set and removed", s.counterRound)
		t.Run("a request id", s.counterRepeated)
		t.Run("what is refused", s.counterRefused)
		t.Run("with a date", s.counterDated)
		t.Run("listed page by page", s.countersListed)
	})
}

func (s *service) added(t testing.TB, key string, request client.CounterRequest) client.CounterRange {
	t.Helper()
	got, err := s.Add(t.Context(), key, request)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *service) counterAt(t testing.TB, key string, want int64) {
	t.Helper()
	if value, err := s.Counter(t.Context(), key); err != nil || value != want {
		t.Errorf("%s is at %d, %v; want %d", key, value, err, want)
	}
}

func (s *service) counterRound(t *testing.T) {
	ctx := t.Context()
	_, err := s.Counter(ctx, "round")
	wantError(t, err, client.ErrNotFound)
	wantError(t, s.RemoveCounter(ctx, "round"), client.ErrNotFound)
	for want := range int64(3) {
		if value, err := s.Incr(ctx, "round"); err != nil || value != want+1 {
			t.Errorf("%d, %v", value, err)
		}
	}
	if got, err := s.IncrBy(ctx, "round", 10); err != nil || got.Key != "round" || got.First != 4 || got.Value != 13 || got.Numbers != nil {
		t.Errorf("%+v, %v", got, err)
	}
	s.counterAt(t, "round", 13)
	if err := s.SetCounter(ctx, "round", -5, 0); err != nil {
		t.Error(err)
	}
	s.counterAt(t, "round", -5)
	if got := s.added(t, "round", client.CounterRequest{}); got.First != -4 {
		t.Errorf("%+v", got)
	}
	if err := s.RemoveCounter(ctx, "round"); err != nil {
		t.Error(err)
	}
	if got := s.added(t, "round", client.CounterRequest{TTL: 150 * time.Millisecond}); got.Value != 1 {
		t.Errorf("%+v", got)
	}
	eventually(t, "it expires", func() bool { _, err := s.Counter(ctx, "round"); return errors.Is(err, client.ErrNotFound) })
	if err := s.SetCounter(ctx, "round", 7, 100*time.Millisecond); err != nil {
		t.Error(err)
	}
	eventually(t, "it expires", func() bool { _, err := s.Counter(ctx, "round"); return errors.Is(err, client.ErrNotFound) })
}

func (s *service) counterRepeated(t *testing.T) {
	for _, id := range []string{"order-1", `a "quoted\" id, with; more=1`, " ", `"order-1"`, "a,b", "~", strings.Repeat("x", 255)} {
		request := client.CounterRequest{RequestID: id, By: 3}
		first := s.added(t, "repeated", request)
		s.added(t, "repeated", client.CounterRequest{})
		if again := s.added(t, "repeated", request); again.First != first.First || again.Value != first.Value {
			t.Errorf("%q: %+v, then %+v", id, first, again)
		}
		request.By = 4
		_, err := s.Add(t.Context(), "repeated", request)
		wantError(t, err, client.ErrMismatch)
	}
	s.counterAt(t, "repeated", 7*4)
}

func (s *service) counterRefused(t *testing.T) {
	ctx := t.Context()
	if err := s.SetCounter(ctx, "full", math.MaxInt64-1, 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.IncrBy(ctx, "full", 2)
	wantError(t, err, client.ErrOverflow)
	if value, err := s.Incr(ctx, "full"); err != nil || value != math.MaxInt64 {
		t.Errorf("%d, %v", value, err)
	}
	s.counterAt(t, "full", math.MaxInt64)
	if err := s.SetCounter(ctx, "narrow", 99, 0); err != nil {
		t.Fatal(err)
	}
	_, err = s.Add(ctx, "narrow", client.CounterRequest{Template: "{n:2}"})
	wantError(t, err, client.ErrOverflow)
	s.counterAt(t, "narrow", 99)
	for _, request := range []client.CounterRequest{
		{By: 1_000_001}, {TTL: time.Millisecond}, {Template: "{"}, {Template: "x"}, {Calendar: "orders"}, {Calendar: "{yyyy}", Zone: "Nowhere/At-all"}, {Zone: "UTC"},
		{Calendar: "{yyyyMMdd}", At: time.Now().AddDate(0, 0, 3)}, {Calendar: "{yyyy}", TTL: time.Hour}, {Template: "{n}", By: 1001}, {Calendar: "{yyyyMMdd}", Template: "{n}"},
	} {
		_, err := s.Add(ctx, "narrow", request)
		wantError(t, err, client.ErrInvalidRequest)
	}
	for _, err := range s.Counters(ctx, "a b") {
		wantError(t, err, client.ErrInvalidRequest)
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
		if got := s.added(t, "dated", row.request); got.Key != row.key || !slices.Equal(got.Numbers, row.numbers) {
			t.Errorf("%+v: %+v", row.request, got)
		}
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
		if err != nil || info.Err != nil || info.Value != int64(len(keys)+1) {
			t.Fatalf("%+v, %v", info, err)
		}
		keys = append(keys, info.Key)
	}
	if !slices.Equal(keys, want) {
		t.Errorf("%q", keys)
	}
	for range s.Counters(t.Context(), "listed:") {
		break // the rest is not asked for
	}
	if n := len(slices.Collect(func(yield func(bool) bool) {
		for range s.Counters(t.Context(), "no such") {
			yield(true)
		}
	})); n != 1 { // the error: a space is in no name
		t.Errorf("%d", n)
	}
}

// A value that others have written, and that is no integer, is on the list with an error of its own.
func TestACounterThatIsNoIntegerIsListedAsThat(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, storetest.Open(t, redisstore.Config{URL: redis.URL()}))
	s.added(t, "text", client.CounterRequest{})
	if err := redis.Client().Set(t.Context(), keyOf(t, redis, "text"), "abc", 0).Err(); err != nil {
		t.Fatal(err)
	}
	listed := 0
	for info, err := range s.Counters(t.Context(), "") {
		listed++
		if err != nil || info.Key != "text" || !errors.Is(info.Err, client.ErrNotAnInteger) || !errors.Is(info.Err, client.ErrRefused) {
			t.Errorf("%+v, %v", info, err)
		}
	}
	_, err := s.Counter(t.Context(), "text")
	wantError(t, err, client.ErrNotAnInteger)
	_, err = s.Incr(t.Context(), "text")
	wantError(t, err, client.ErrNotAnInteger)
	if listed != 1 {
		t.Errorf("%d listed", listed)
	}
}

// keyOf is the Redis key of a counter, as the store of a test has it.
func keyOf(t testing.TB, redis *redistest.Server, counter string) string {
	t.Helper()
	return storetest.Open(t, redisstore.Config{URL: redis.URL()}).Key("counter", counter)
}

// After a loss of everything nothing is added for a while, and who asks hears how long. Then values go on.
func TestCountersOverTheLossOfAllState(t *testing.T) {
	redis := redistest.Start(t)
	s := serveWith(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Counters: counter.Config{HoldOff: time.Second}})
	before := s.added(t, "orders", client.CounterRequest{By: 42})
	flush(t, redis)
	var held atomic.Bool
	var after int64
	eventually(t, "it goes on", func() bool {
		value, err := s.Incr(t.Context(), "orders")
		if errors.Is(err, client.ErrQuarantined) {
			if said := wantError(t, err, client.ErrQuarantined); said.RetryAfter <= 0 || said.RetryAfter > 2*time.Second || !said.Retryable {
				t.Errorf("%+v", said)
			}
			held.Store(true)
		} else if err != nil {
			t.Fatal(err)
		}
		after = value
		return err == nil
	})
	if !held.Load() || after <= before.Value {
		t.Errorf("held off: %t; %d after %d", held.Load(), after, before.Value)
	}
}

// A service that refuses counters that have gone back does so until somebody sets them.
func TestACounterThatHasGoneBackIsSetToGoOn(t *testing.T) {
	redis := redistest.Start(t)
	s := serveWith(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Counters: counter.Config{AfterLoss: counter.Refuse}})
	s.added(t, "orders", client.CounterRequest{By: 42})
	if err := redis.Client().Set(t.Context(), keyOf(t, redis, "orders"), 7, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := s.Incr(t.Context(), "orders")
		if said := wantError(t, err, client.ErrBehind); said.Retryable || said.RetryAfter != 0 {
			t.Errorf("%+v", said)
		}
	}
	if err := s.SetCounter(t.Context(), "orders", 100, 0); err != nil {
		t.Fatal(err)
	}
	if value, err := s.Incr(t.Context(), "orders"); err != nil || value != 101 {
		t.Errorf("%d, %v", value, err)
	}
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
			s.line.disturb(onCounters(1, &sent, lose))
			_, err := s.Incr(t.Context(), "orders")
			wantError(t, err, client.ErrUnknownOutcome)
			if sent.Load() != 1 {
				t.Errorf("sent %d times", sent.Load())
			}
			if got := s.added(t, "orders", client.CounterRequest{}); got.Value != 2 && got.Value != 3 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// With a request id a reply that was lost is had by asking again: by the caller, or with Repeat by the client.
func TestALostReplyIsHadByARepeat(t *testing.T) {
	for name, lose := range map[string]fault{
		"served": loseReply, "not served": hangUp, "cut off": cutOff, "proxy": says(502, "text/html", "bad gateway"),
		"away": says(503, "application/problem+json", `{"code":"store-unavailable"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := embedded(t)
			s.added(t, "orders", client.CounterRequest{})
			var sent atomic.Int64
			s.line.disturb(onCounters(3, &sent, lose))
			if got := s.added(t, "orders", client.CounterRequest{Repeat: true, By: 5}); got.First != 2 || got.Value != 6 {
				t.Errorf("%+v", got)
			}
			sent.Store(0)
			request := client.CounterRequest{RequestID: "order-1"}
			for i := 0; ; i++ {
				got, err := s.Add(t.Context(), "orders", request)
				if err == nil {
					if got.Value != 7 {
						t.Errorf("%+v", got)
					}
					break
				}
				if i == 4 {
					t.Fatal(err)
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
		if got := s.added(t, "orders", client.CounterRequest{Repeat: true}); got.Value != want+1 {
			t.Errorf("%+v", got)
		}
	}
}

func TestARepeatEndsWithItsContextAndOnARefusal(t *testing.T) {
	var sent atomic.Int64
	refused := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		wire.NewProblem(wire.CounterBehind, "").Write(w)
	})))
	_, err := refused.Add(t.Context(), "orders", client.CounterRequest{Repeat: true})
	wantError(t, err, client.ErrBehind)
	if sent.Load() != 1 {
		t.Errorf("sent %d times", sent.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	away := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		wire.NewProblem(wire.StoreUnavailable, "").Write(w)
	})))
	_, err = away.Add(ctx, "orders", client.CounterRequest{Repeat: true})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, client.ErrUnavailable) { // by which of the two came first
		t.Error(err)
	}
}

func TestWhatIsNoCounterIsNotSent(t *testing.T) {
	c := connect(t, listen(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s", r.Method, r.URL) })))
	ctx := t.Context()
	for _, key := range []string{"", ".", "..", "a/b", "a b", "a?b", "a%2Fb", "ä", "a:{yyyy}", strings.Repeat("a", 201)} {
		_, err := c.Incr(ctx, key)
		wantError(t, err, client.ErrInvalidRequest)
		_, err = c.Counter(ctx, key)
		wantError(t, err, client.ErrInvalidRequest)
		wantError(t, c.SetCounter(ctx, key, 1, 0), client.ErrInvalidRequest)
		wantError(t, c.RemoveCounter(ctx, key), client.ErrInvalidRequest)
		_, err = c.SegmentIDs(ctx, key, 1)
		wantError(t, err, client.ErrInvalidRequest)
	}
	for _, request := range []client.CounterRequest{{By: -1}, {RequestID: "a\nb"}, {RequestID: "ä"}, {RequestID: strings.Repeat("x", 256)}, {By: -1, Repeat: true}} {
		_, err := c.Add(ctx, "orders", request)
		wantError(t, err, client.ErrInvalidRequest)
	}
	_, err := c.IncrBy(ctx, "orders", 0)
	wantError(t, err, client.ErrInvalidRequest)
}

// An answer of which a part is missing or impossible is none: nobody may use values that others can have.
func TestValuesThatCanNotBeAreAnUnknownOutcome(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"key":"orders"}`, `{"key":"other","value":2,"first":1}`, `{"key":"orders","value":3,"first":1}`, `{"key":"orders","value":1,"first":2}`,
		`{"key":"orders:20261121","value":2,"first":1}`, `{"key":"orders","value":2,"first":1,"number":"A"}`, `{"key":"orders","value":"2","first":"1"}`, `null`, ``,
		`{"key":"orders","value":-9223372036854775808,"first":9223372036854775807}`,
	} {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(200, "application/json", body)(w, nil, nil) })))
		_, err := c.IncrBy(t.Context(), "orders", 2)
		wantError(t, err, client.ErrUnknownOutcome)
		wantError(t, c.SetCounter(t.Context(), "orders", 5, 0), client.ErrUnknownOutcome)
		if _, err := c.Counter(t.Context(), "counts"); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %v", body, err)
		}
		for _, err := range c.Counters(t.Context(), "") {
			wantError(t, err, client.ErrUnavailable)
		}
	}
	for _, body := range []string{`{"key":"orders:20261121","value":2,"first":1}`, `{"key":"orders:x","value":2,"first":1,"numbers":["A"]}`, `{"key":"invoices:x","value":2,"first":1,"numbers":["A","B"]}`} {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(200, "application/json", body)(w, nil, nil) })))
		_, err := c.Add(t.Context(), "orders", client.CounterRequest{By: 2, Template: "{n}"})
		wantError(t, err, client.ErrUnknownOutcome)
	}
}

// A list whose next page begins no later than this one would never end.
func TestAListThatGoesBackEnds(t *testing.T) {
	c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		says(200, "application/json", `{"counters":[{"key":"a","value":1}],"pools":[],"locks":[],"next":"a"}`)(w, nil, nil)
	})))
	ends := func(name string, count int, err error) {
		if count != 2 || !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %d, %v", name, count, err)
		}
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

func TestSegmentIDsOfTheService(t *testing.T) {
	s := embedded(t)
	var last int64
	for _, n := range []int{1, 2, 10_000, 1} {
		ids, err := s.SegmentIDs(t.Context(), "orders", n)
		if err != nil || len(ids) != n || !slices.IsSorted(ids) || ids[0] <= last {
			t.Fatalf("%d ids, %v", len(ids), err)
		}
		last = ids[n-1]
	}
	if last != 10_004 {
		t.Errorf("%d", last)
	}
	for _, n := range []int{0, -1, 10_001} {
		_, err := s.SegmentIDs(t.Context(), "orders", n)
		wantError(t, err, client.ErrInvalidRequest)
	}
	for _, body := range []string{`{}`, `{"ids":["1"]}`, `{"ids":["1","x"]}`, `{"ids":["1","-2"]}`} {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(200, "application/json", body)(w, nil, nil) })))
		_, err := c.SegmentIDs(t.Context(), "orders", 2)
		wantError(t, err, client.ErrUnavailable)
	}
}
