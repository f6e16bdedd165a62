package idempotency

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Every way in which an attempt can end, for an answer that is kept back until the handler has
// returned and for one that has grown over the limit.
func TestEndOfAnAttemptDecidesTheAnswerToARepeat(t *testing.T) {
	type ending struct {
		name   string
		route  Route
		end    func(*Attempt)
		status int
		state  State // of the key after the first request; forgotten = it is not known any more
		code   int   // of the repeat
		runs   int64 // after the repeat
	}
	nothing := func(*Attempt) {}
	endings := []ending{
		{"answered", Route{}, nothing, 201, StateCompleted, 201, 1},
		{"answered with an error", Route{}, nothing, 500, StateCompleted, 500, 1},
		{"never begun", Route{}, (*Attempt).Release, 400, forgotten, 400, 2},
		{"sent away with 401", Route{}, nothing, 401, StateCompleted, 401, 1},
		{"sent away with 403", Route{}, nothing, 403, StateCompleted, 403, 1},
		{"sent away with 407", Route{}, nothing, 407, StateCompleted, 407, 1},
		{"sent away with 429", Route{}, nothing, 429, StateCompleted, 429, 1},
		{"sent on with 307", Route{}, nothing, 307, StateCompleted, 307, 1},
		{"sent on with 308", Route{}, nothing, 308, StateCompleted, 308, 1},
		{"asked again with 421", Route{}, nothing, 421, StateCompleted, 421, 1},
		{"asked again with 425", Route{}, nothing, 425, StateCompleted, 425, 1},
		{"given up with 408", Route{}, nothing, 408, StateInDoubt, 409, 1},
		{"given up with 502", Route{}, nothing, 502, StateInDoubt, 409, 1},
		{"given up with 503", Route{}, nothing, 503, StateInDoubt, 409, 1},
		{"given up with 504", Route{}, nothing, 504, StateInDoubt, 409, 1},
		{"given up, and never begun", Route{}, (*Attempt).Release, 503, forgotten, 503, 2},
		{"freed", Route{Frees: []string{"401", "503"}}, nothing, 503, forgotten, 503, 2},
		{"freed by class", Route{Frees: []string{"4xx"}}, nothing, 429, forgotten, 429, 2},
		{"freed by class, but for one that is in doubt", Route{Frees: []string{"4xx"}}, nothing, 408, StateInDoubt, 409, 1},
		{"freed, but in doubt as the handler says", Route{Frees: []string{"4xx"}}, (*Attempt).Abandon, 429, StateInDoubt, 409, 1},
		{"doubted", Route{Doubts: []string{"5xx"}}, nothing, 500, StateInDoubt, 409, 1},
		{"nothing doubted", Route{Doubts: []string{}}, nothing, 504, StateCompleted, 504, 1},
		{"kept by class, but for one that is in doubt", Route{Keep: []string{"2xx", "3xx", "4xx", "5xx"}}, nothing, 503, StateInDoubt, 409, 1},
		{"sent away and kept", Route{Keep: []string{"2xx", "3xx", "4xx", "5xx"}}, nothing, 403, StateCompleted, 403, 1},
		{"in doubt", Route{}, (*Attempt).Abandon, 504, StateInDoubt, 409, 1},
		{"in doubt after all", Route{}, func(a *Attempt) { a.Release(); a.Abandon() }, 504, StateInDoubt, 409, 1},
		{"in doubt when all was written", Route{}, nothing, 202, StateInDoubt, 409, 1},
		{"in doubt under takeover", Route{Policy: PolicyTakeover}, (*Attempt).Abandon, 504, StateInDoubt, 504, 2},
		{"kept by class", Route{Keep: []string{"2xx", "4xx"}}, nothing, 404, StateCompleted, 404, 1},
		{"kept by status", Route{Keep: []string{"503"}}, nothing, 503, StateCompleted, 503, 1},
		{"not kept", Route{Keep: []string{"2xx", "4xx"}}, nothing, 500, StateInDoubt, 409, 1},
	}
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		for _, e := range endings {
			for size, body := range map[string]string{"small": "answer", "over the limit": strings.Repeat("long answer ", 100)} {
				t.Run(e.name+" "+size, func(t *testing.T) {
					h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
						attempt, _ := FromContext(r.Context())
						e.end(attempt)
						w.WriteHeader(e.status)
						_, _ = io.WriteString(w, body)
						if e.status == http.StatusAccepted {
							attempt.Abandon()
						}
					}}
					route := e.route
					route.Name, route.MaxAnswer, route.Lease = "r", 100, time.Hour
					guarded := tokens.Middleware(route)(h)
					key := KeyHeader + ": " + strings.NewReplacer(" ", "-", ",", "").Replace(e.name+size)
					expect.Equal(t, "the first request", statusAndBody(post(guarded, "x", key)), fmt.Sprint(e.status, " ", body))
					wantState(t, tokens, Key{Scope: "r", ID: strings.TrimPrefix(key, KeyHeader+": ")}, e.state)
					wantStatus(t, "the request again", post(guarded, "x", key), e.code)
					h.wantRuns(t, e.runs)
				})
			}
		}
	})
}

// overHTTP serves a guarded handler to a real client, and returns the answer to a request with a
// key.
func overHTTP(t *testing.T, method string, route Route, h *handler) (ask func(key string) *http.Response) {
	t.Helper()
	service := httptest.NewServer(embeddedTokens(t).Middleware(route)(h))
	t.Cleanup(service.Close)
	return func(key string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), method, service.URL+"/pay", http.NoBody)
		expect.NoError(t, "making the request", err)
		request.Header.Set(KeyHeader, key)
		request.Header.Set("If-None-Match", `"v1"`) // for the 304
		response, err := service.Client().Do(request)
		if err != nil {
			t.Fatal(err) // names the request
		}
		t.Cleanup(func() { _ = response.Body.Close() }) // read to its end
		return response
	}
}

// shape is an answer that HTTP allows, as the first client and a later one see it.
type shape struct {
	method       string
	serve        http.HandlerFunc
	first, again shown
}

// shown is what a client sees of an answer; of its headers those of the test, "" for one that is
// not there.
type shown struct {
	status  int
	body    string
	header  map[string]string
	trailer http.Header
}

// see reads an answer, and of its headers those that are wanted.
func see(t *testing.T, r *http.Response, want shown) shown {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	expect.NoError(t, "reading the answer", err)
	got := shown{status: r.StatusCode, body: string(body), header: map[string]string{}, trailer: r.Trailer}
	for name := range want.header {
		got.header[name] = r.Header.Get(name)
	}
	return got
}

var shapes = map[string]shape{
	"HEAD": {
		"HEAD", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			_, _ = io.WriteString(w, "unseen")
		},
		shown{status: 200, header: map[string]string{"ETag": `"v1"`}},
		shown{status: 200, header: map[string]string{"ETag": `"v1"`}},
	},
	"204": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"v2"`)
			w.WriteHeader(http.StatusNoContent)
		},
		shown{status: 204, header: map[string]string{"ETag": `"v2"`}},
		shown{status: 204, header: map[string]string{"ETag": `"v2"`}},
	},
	"304": {
		"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotModified)
			if _, err := io.WriteString(w, "none"); err == nil {
				panic("a body where none is allowed")
			}
		},
		shown{status: 304},
		shown{status: 304},
	},
	"informational answers are dropped": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
		},
		shown{status: 202, header: map[string]string{"Link": "</style.css>; rel=preload"}},
		shown{status: 202, header: map[string]string{"Link": "</style.css>; rel=preload"}},
	},
	"flushed in pieces": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "piece ")
				w.(http.Flusher).Flush()
			}
		},
		shown{status: 200, body: "piece piece piece "},
		shown{status: 200, body: "piece piece piece "},
	},
	"streamed by Gin": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			select {
			case <-w.(interface{ CloseNotify() <-chan bool }).CloseNotify():
			default:
				_, _ = io.WriteString(w, "streamed")
			}
		},
		shown{status: 200, body: "streamed"},
		shown{status: 200, body: "streamed"},
	},
	"trailers": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
		},
		shown{status: 200, body: "body", header: map[string]string{"X-Sum": ""}, trailer: http.Header{"X-Sum": {"42"}}},
		shown{status: 200, body: "body", header: map[string]string{"Trailer": "", "X-Sum": ""}},
	},
	"trailers of an answer over the limit": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, strings.Repeat("x", 200))
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-More", "43")
		},
		shown{status: 200, body: strings.Repeat("x", 200), trailer: http.Header{"X-Sum": {"42"}, "X-More": {"43"}}},
		shown{status: 200, header: map[string]string{"Idempotent-Body": "not-kept"}},
	},
	"trailers by the header that the handler has at its beginning": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			header := w.Header()
			header.Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, strings.Repeat("x", 200))
			header.Set("X-Sum", "42")
			header.Set(http.TrailerPrefix+"X-More", "43")
		},
		shown{status: 200, body: strings.Repeat("x", 200), trailer: http.Header{"X-Sum": {"42"}, "X-More": {"43"}}},
		shown{status: 200, header: map[string]string{"Idempotent-Body": "not-kept"}},
	},
	"nothing written": {
		"POST", func(http.ResponseWriter, *http.Request) {},
		shown{status: 200},
		shown{status: 200},
	},
	"headers of one moment": {
		"POST", func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range map[string]string{"Set-Cookie": "s=1", "Connection": "X-Hop", "X-Hop": "1", "X-Kept": "2"} {
				w.Header().Set(name, value)
			}
		},
		shown{status: 200, header: map[string]string{"Set-Cookie": "s=1"}},
		shown{status: 200, header: map[string]string{"X-Kept": "2", "Set-Cookie": "", "X-Hop": ""}},
	},
}

func TestEveryShapeOfAnswerIsReplayedWithoutRunningAgain(t *testing.T) {
	for name, row := range shapes {
		t.Run(name, func(t *testing.T) {
			h := &handler{serve: row.serve}
			ask := overHTTP(t, row.method, Route{Name: "r", MaxAnswer: 100}, h)
			expect.Equal(t, row.method+" /pay", see(t, ask("k"), row.first), row.first, cmpopts.EquateEmpty())
			replay := ask("k")
			expect.Equal(t, row.method+" /pay again", see(t, replay, row.again), row.again, cmpopts.EquateEmpty())
			expect.Equal(t, row.method+" /pay again: header Idempotent-Replayed", replay.Header.Get("Idempotent-Replayed"), "true")
			h.wantRuns(t, 1)
		})
	}
}

// A handler that takes longer than its server's timeouts asks for the time, as without a guard.
func TestHandlerMayTakeLongerThanTheServersTimeouts(t *testing.T) {
	const timeout = 50 * time.Millisecond
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		expect.Error(t, "SetReadDeadline", control.SetReadDeadline(time.Time{}), nil)
		expect.Error(t, "SetWriteDeadline", control.SetWriteDeadline(time.Time{}), nil)
		time.Sleep(4 * timeout)
		_, _ = io.WriteString(w, "paid")
	}}
	service := httptest.NewUnstartedServer(embeddedTokens(t).Middleware(Route{Name: "r"})(h))
	service.Config.WriteTimeout = timeout
	service.Start()
	t.Cleanup(service.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, service.URL, http.NoBody)
	expect.Error(t, "making the request", err, nil)
	request.Header.Set(KeyHeader, "k")
	response, err := service.Client().Do(request)
	if err != nil {
		t.Fatal(err) // names the request
	}
	expect.Equal(t, "the answer", see(t, response, shown{}).body, "paid")
	expect.Error(t, "closing the answer", response.Body.Close(), nil)
}

func TestConnectionOfAGuardedHandlerIsNotHandedOver(t *testing.T) {
	ask := overHTTP(t, http.MethodPost, Route{Name: "r"}, &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack() // as frameworks ask, Gin for one
		expect.Error(t, "Hijack", err, http.ErrNotSupported)
		_, _, err = http.NewResponseController(w).Hijack()
		expect.Error(t, "Hijack by a ResponseController", err, http.ErrNotSupported)
		w.WriteHeader(http.StatusNotImplemented)
	}})
	for range 2 {
		expect.Equal(t, "the answer", see(t, ask("k"), shown{}).status, http.StatusNotImplemented)
	}
}

func TestRouteWithFaultsIsRefused(t *testing.T) {
	for name, route := range map[string]Route{
		"accept": {Accept: "both"}, "policy": {Policy: "retry"}, "lease": {Lease: 1}, "retention": {Retention: -1}, "ack": {Ack: -1}, "body": {MaxBody: -1},
		"answer": {MaxAnswer: -1}, "keep": {Keep: []string{"2xx", "ok"}}, "keep of 1xx": {Keep: []string{"100"}}, "keep nothing": {Keep: []string{}},
		"header": {Headers: []string{"X Y"}}, "scope": {Scope: strings.Repeat("s", 201)},
	} {
		if err := route.Check(); err == nil {
			t.Errorf("Check of a route with a wrong %s: got no error", name)
		}
		if saidBy(func() { (&Tokens{}).Middleware(route) }) == "" {
			t.Errorf("Middleware for a route with a wrong %s: got no panic", name)
		}
	}
	expect.Error(t, "Check of the zero route", (Route{}).Check(), nil)
	if err := (Route{Lease: 1, Ack: 101}).Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("Check of a route with two faults: got error %v, want two lines", err)
	}
}

func TestRefusalLinksToThePolicy(t *testing.T) {
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{PolicyURL: "/policy"})
	guarded := tokens.Middleware(Route{Name: "r", MaxBody: 10})(&handler{})
	post(guarded, "x", "Idempotency-Key: used")
	const link = `</policy>; rel="describedby"`
	for name, row := range map[string]struct {
		body, header string
		code         api.Code
		link         string
	}{
		"missing":   {"x", "", api.KeyMissing, link},
		"malformed": {"x", "Idempotency-Key: a b", api.KeyMalformed, link},
		"mismatch":  {"y", "Idempotency-Key: used", api.PayloadMismatch, link},
		"too large": {strings.Repeat("x", 11), "Idempotency-Key: k", api.PayloadTooLarge, ""},
	} {
		var headers []string
		if row.header != "" {
			headers = []string{row.header}
		}
		w := post(guarded, row.body, headers...)
		wantCode(t, name, w, row.code)
		wantHeader(t, name, w, "Link", row.link)
	}
	wantHeader(t, "without a policy page", post(embeddedTokens(t).Middleware(Route{})(&handler{}), "x"), "Link", "")
}

// Callers that the handler refuses before it does anything leave no key in Redis.
func TestRefusedCallersLeaveNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute}))
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }}
	guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour, Frees: []string{"401"}})(h)
	for i := range 200 {
		key, caller := KeyHeader+": k"+strconv.Itoa(i), "Authorization: guess "+strconv.Itoa(i)
		wantStatus(t, "a request without a right", post(guarded, "x", key, caller), 401)
	}
	h.wantRuns(t, 200)
	expect.Equal(t, "keys in Redis", redis.Client().DBSize(t.Context()).Val(), 0)
}
