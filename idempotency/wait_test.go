package idempotency

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestPatienceIsWhatPreferAsksAndTheRouteAllows(t *testing.T) {
	for field, want := range map[string]time.Duration{
		"wait=5":                       5 * time.Second,
		`wait="5"`:                     5 * time.Second,
		"respond-async, WAIT = 7; x=1": 7 * time.Second,
		"wait=2, wait=9":               2 * time.Second,
		"wait=100":                     10 * time.Second,
		"wait=99999999999":             0,
		"wait=-1":                      0,
		"wait":                         0,
		"wait=soon":                    0,
		"waiting=5":                    0,
		"":                             0,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Prefer", field)
		expect.Equal(t, "patience of Prefer: "+field, (Route{MaxWait: 10 * time.Second}).patience(r), want)
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header["Prefer"] = []string{"return=minimal", "wait=3"}
	expect.Equal(t, "wait=3 in the second field", (Route{}).WithDefaults().patience(r), 3*time.Second)
	expect.Equal(t, "wait=3 on a route that lets no request wait", (Route{MaxWait: -1}).WithDefaults().patience(r), 0)
}

// gate is a handler that waits until it is let on.
func gate() (h *handler, let chan struct{}) {
	let = make(chan struct{})
	return &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		<-let
		w.WriteHeader(http.StatusCreated)
	}}, let
}

// Ten requests wait in a process other than the one where the handler runs; all are woken when it
// has ended.
func TestWaitingRequestsGetTheAnswerOfTheRunningAttempt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		h, let := gate()
		route := Route{Name: "r", Lease: time.Hour, MaxWait: time.Hour}
		runs, waits := newTokens(t, store).Middleware(route)(h), newTokens(t, store)
		var clients sync.WaitGroup
		clients.Go(func() { wantStatus(t, "the first request", post(runs, "x", "Idempotency-Key: k"), 201) })
		expect.Eventually(t, "the handler runs", func() bool { return h.runs.Load() == 1 })
		for range 10 {
			clients.Go(func() {
				w := post(waits.Middleware(route)(h), "x", "Idempotency-Key: k", "Prefer: wait=3600")
				wantStatus(t, "a request that waits", w, 201)
				wantReplayed(t, "a request that waits", w, true)
			})
		}
		expect.Eventually(t, "a request waits", func() bool { return field(t, waits, Key{Scope: "r", ID: "k"}, "awaited") == "1" })
		close(let)
		clients.Wait()
		h.wantRuns(t, 1)
	})
}

// How long a waiting request waits, in the bubble's time, for each way in which the attempt can
// end.
func TestWaitingEndsWithTheAttemptAndNotByPolling(t *testing.T) {
	for name, row := range map[string]struct {
		end    func(*Attempt)
		prefer string
		hangUp bool // of the waiting client
		told   bool // whether the message of the end arrives
		least  time.Duration
		most   time.Duration
		status int
		code   api.Code
		runs   int64
	}{
		"answered":            {told: true, prefer: "wait=60", least: 20 * time.Second, most: 20 * time.Second, status: 201, runs: 1},
		"given back":          {told: true, prefer: "wait=60", end: (*Attempt).Release, least: 20 * time.Second, most: 40 * time.Second, status: 201, runs: 2},
		"in doubt":            {told: true, prefer: "wait=60", end: (*Attempt).Abandon, least: 20 * time.Second, most: 20 * time.Second, status: 409, code: api.IdempotencyUnknown, runs: 1},
		"the message is lost": {told: false, prefer: "wait=60", least: 20 * time.Second, most: 20*time.Second + longestPoll, status: 201, runs: 1},
		"patience ends":       {told: true, prefer: "wait=5", least: 5 * time.Second, most: 5 * time.Second, status: 409, code: api.InProgress, runs: 1},
		"no patience":         {told: true, prefer: "", least: 0, most: 0, status: 409, code: api.InProgress, runs: 1},
		"the client hangs up": {told: true, prefer: "wait=60", hangUp: true, least: 3 * time.Second, most: 3 * time.Second, status: 409, code: api.InProgress, runs: 1},
		"the route's limit":   {told: true, prefer: "wait=600", least: 20 * time.Second, most: 20 * time.Second, status: 201, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.Open(t, redisstore.Config{})
				h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(20 * time.Second)
					if attempt, _ := FromContext(r.Context()); row.end != nil {
						row.end(attempt)
					}
					w.WriteHeader(http.StatusCreated)
				}}
				tokens, other := newTokens(t, store), newTokens(t, store)
				if !row.told {
					tokens.done = "elsewhere"
				}
				go post(tokens.Middleware(Route{Name: "r"})(h), "x", "Idempotency-Key: k")
				synctest.Wait()

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.hangUp {
					time.AfterFunc(3*time.Second, cancel)
				}
				request := httptest.NewRequestWithContext(ctx, "POST", "/pay", strings.NewReader("x"))
				request.Header.Set(KeyHeader, "k")
				request.Header.Set("Prefer", row.prefer)
				w := httptest.NewRecorder()
				began := time.Now()
				other.Middleware(Route{Name: "r"})(h).ServeHTTP(w, request)
				if waited := time.Since(began); waited < row.least || waited > row.most {
					t.Errorf("waited %v, want %v to %v", waited, row.least, row.most)
				}
				wantStatus(t, "the request that waits", w, row.status)
				expect.Equal(t, "code of the answer to the request that waits", codeOf(w), row.code)
				time.Sleep(time.Minute) // whatever still runs ends
				h.wantRuns(t, row.runs)
			})
		})
	}
}

// What may not begin any more is not claimed, even if it has waited since before.
func TestNothingIsClaimedThatIsNotAdmitted(t *testing.T) {
	var stopping atomic.Bool
	stop := errors.New("stopping")
	tokens := New(storetest.Open(t, redisstore.Config{}), Config{Admit: func() error {
		if stopping.Load() {
			return stop
		}
		return nil
	}})
	t.Cleanup(func() { _ = tokens.Close(context.Background()) })
	h, let := gate()
	h.serve = func(w http.ResponseWriter, _ *http.Request) {
		<-let
		w.WriteHeader(http.StatusTooManyRequests) // which is not kept: the key is given back
	}
	guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour, MaxWait: time.Hour})(h)
	var clients sync.WaitGroup
	clients.Go(func() { wantStatus(t, "the first request", post(guarded, "x", "Idempotency-Key: k"), 429) })
	expect.Eventually(t, "the handler runs", func() bool { return h.runs.Load() == 1 })
	clients.Go(func() {
		w := post(guarded, "x", "Idempotency-Key: k", "Prefer: wait=3600")
		wantCode(t, "the request that waits", w, api.StoreUnavailable)
		expect.Contains(t, "its problem", w.Body.String(), "nothing is begun now: stopping")
	})
	expect.Eventually(t, "a request waits", func() bool { return field(t, tokens, Key{Scope: "r", ID: "k"}, "awaited") == "1" })
	stopping.Store(true)
	close(let)
	clients.Wait()
	h.wantRuns(t, 1)
	_, err := tokens.Do(t.Context(), Key{Scope: "jobs", ID: "j"}, ClaimOptions{}, func(context.Context, *Attempt) ([]byte, error) { return nil, nil })
	expect.Error(t, "Do", err, stop)
}

// A repeat that does not wait leaves no mark, so that nothing is published for it.
func TestRunningAttemptIsNotMarkedUnlessARequestWaits(t *testing.T) {
	tokens := embeddedTokens(t)
	h, let := gate()
	guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour})(h)
	var first sync.WaitGroup
	first.Go(func() { post(guarded, "x", "Idempotency-Key: k") })
	expect.Eventually(t, "the handler runs", func() bool { return h.runs.Load() == 1 })
	wantCode(t, "a request while the handler runs", post(guarded, "x", "Idempotency-Key: k"), api.InProgress)
	expect.Equal(t, "the mark that a request waits", field(t, tokens, Key{Scope: "r", ID: "k"}, "awaited"), "")
	close(let)
	first.Wait()
}
