package idempotency

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Every way in which an attempt can end, for an answer that is kept back until the handler has returned and for one that has grown over the limit.
func TestEndOfAnAttemptDecidesWhatARepeatHears(t *testing.T) {
	type ending struct {
		name   string
		route  Route
		end    func(*Attempt)
		status int
		state  State // of the token after the first request
		code   int   // of the repeat
		runs   int64 // after the repeat
	}
	nothing := func(*Attempt) {}
	endings := []ending{
		{"answered", Route{}, nothing, 201, Completed, 201, 1},
		{"answered with an error", Route{}, nothing, 503, Completed, 503, 1},
		{"never begun", Route{}, (*Attempt).NotBegun, 400, Issued, 400, 2},
		{"in doubt", Route{}, (*Attempt).InDoubt, 504, InDoubt, 409, 1},
		{"in doubt after all", Route{}, func(a *Attempt) { a.NotBegun(); a.InDoubt() }, 504, InDoubt, 409, 1},
		{"in doubt under takeover", Route{Policy: Takeover}, (*Attempt).InDoubt, 504, InDoubt, 504, 2},
		{"kept by class", Route{Keep: []string{"2xx", "4xx"}}, nothing, 404, Completed, 404, 1},
		{"kept by status", Route{Keep: []string{"503"}}, nothing, 503, Completed, 503, 1},
		{"not kept", Route{Keep: []string{"2xx", "4xx"}}, nothing, 503, Issued, 503, 2},
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
					}}
					route := e.route
					route.Name, route.MaxAnswer = "r", 100
					guarded := tokens.Middleware(route)(h)
					key := KeyHeader + ": " + strings.ReplaceAll(e.name+size, " ", "-")
					first := post(guarded, "x", key)
					if first.Code != e.status || first.Body.String() != body {
						t.Errorf("first: %d, %d bytes", first.Code, first.Body.Len())
					}
					wantState(t, tokens, ClientKey("", "r", strings.TrimPrefix(key, KeyHeader+": ")), e.state)
					if again := post(guarded, "x", key); again.Code != e.code || h.runs.Load() != e.runs {
						t.Errorf("again: %d after %d runs; want %d after %d", again.Code, h.runs.Load(), e.code, e.runs)
					}
				})
			}
		}
	})
}

// overHTTP serves a guarded handler to a real client, and returns the answer to a request with a key.
func overHTTP(t *testing.T, method string, route Route, h *handler) (ask func(key string) *http.Response) {
	t.Helper()
	service := httptest.NewServer(embeddedTokens(t).Middleware(route)(h))
	t.Cleanup(service.Close)
	return func(key string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), method, service.URL+"/pay", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(KeyHeader, key)
		response, err := service.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() }) // read to its end
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		response.Body = io.NopCloser(strings.NewReader(string(body)))
		return response
	}
}

func text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The shapes of an answer that HTTP has, as the first client and a later one see them.
func TestEveryShapeOfAnswerIsReplayedWithoutRunningAgain(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		serve  http.HandlerFunc
		first  func(t *testing.T, r *http.Response)
		replay func(t *testing.T, r *http.Response)
	}{
		"HEAD": {
			"HEAD", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"v1"`)
				_, _ = io.WriteString(w, "unseen")
			},
			func(t *testing.T, r *http.Response) { check(t, r, 200, "", "ETag", `"v1"`) },
			func(t *testing.T, r *http.Response) { check(t, r, 200, "", "ETag", `"v1"`) },
		},
		"204": {
			"POST", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"v2"`)
				w.WriteHeader(http.StatusNoContent)
			},
			func(t *testing.T, r *http.Response) { check(t, r, 204, "", "ETag", `"v2"`) },
			func(t *testing.T, r *http.Response) { check(t, r, 204, "", "ETag", `"v2"`) },
		},
		"304": {
			"GET", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotModified)
				if _, err := io.WriteString(w, "none"); err == nil {
					panic("a body where none is allowed")
				}
			},
			func(t *testing.T, r *http.Response) { check(t, r, 304, "", "", "") },
			func(t *testing.T, r *http.Response) { check(t, r, 304, "", "", "") },
		},
		"informational answers are dropped": {
			"POST", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusAccepted)
			},
			func(t *testing.T, r *http.Response) { check(t, r, 202, "", "Link", "</style.css>; rel=preload") },
			func(t *testing.T, r *http.Response) { check(t, r, 202, "", "Link", "</style.css>; rel=preload") },
		},
		"flushed in pieces": {
			"POST", func(w http.ResponseWriter, _ *http.Request) {
				for range 3 {
					_, _ = io.WriteString(w, "piece ")
					w.(http.Flusher).Flush()
				}
			},
			func(t *testing.T, r *http.Response) { check(t, r, 200, "piece piece piece ", "", "") },
			func(t *testing.T, r *http.Response) { check(t, r, 200, "piece piece piece ", "", "") },
		},
		"trailers": {
			"POST", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-Sum", "42")
			},
			func(t *testing.T, r *http.Response) {
				check(t, r, 200, "body", "", "")
				if r.Trailer.Get("X-Sum") != "42" {
					t.Errorf("trailers %v", r.Trailer)
				}
			},
			func(t *testing.T, r *http.Response) {
				check(t, r, 200, "body", "Trailer", "")
				if len(r.Trailer) > 0 {
					t.Errorf("replayed trailers %v", r.Trailer)
				}
			},
		},
		"trailers of an answer over the limit": {
			"POST", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				_, _ = io.WriteString(w, strings.Repeat("x", 200))
				w.Header().Set("X-Sum", "42")
				w.Header().Set(http.TrailerPrefix+"X-More", "43")
			},
			func(t *testing.T, r *http.Response) {
				check(t, r, 200, strings.Repeat("x", 200), "", "")
				if r.Trailer.Get("X-Sum") != "42" || r.Trailer.Get("X-More") != "43" {
					t.Errorf("trailers %v", r.Trailer)
				}
			},
			func(t *testing.T, r *http.Response) { check(t, r, 200, "", "Idempotent-Body", "not-kept") },
		},
		"nothing written": {
			"POST", func(http.ResponseWriter, *http.Request) {},
			func(t *testing.T, r *http.Response) { check(t, r, 200, "", "", "") },
			func(t *testing.T, r *http.Response) { check(t, r, 200, "", "", "") },
		},
		"headers of one moment": {
			"POST", func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range map[string]string{"Set-Cookie": "s=1", "Connection": "X-Hop", "X-Hop": "1", "X-Kept": "2"} {
					w.Header().Set(name, value)
				}
			},
			func(t *testing.T, r *http.Response) { check(t, r, 200, "", "Set-Cookie", "s=1") },
			func(t *testing.T, r *http.Response) {
				check(t, r, 200, "", "X-Kept", "2")
				if r.Header.Get("Set-Cookie")+r.Header.Get("X-Hop") != "" {
					t.Errorf("replayed %v", r.Header)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handler{serve: row.serve}
			ask := overHTTP(t, row.method, Route{Name: "r", MaxAnswer: 100}, h)
			row.first(t, ask("k"))
			replay := ask("k")
			row.replay(t, replay)
			if replay.Header.Get("Idempotent-Replayed") != "true" || h.runs.Load() != 1 {
				t.Errorf("%d runs, replayed %q", h.runs.Load(), replay.Header.Get("Idempotent-Replayed"))
			}
		})
	}
}

func check(t *testing.T, r *http.Response, status int, body, name, value string) {
	t.Helper()
	if got := text(t, r); r.StatusCode != status || got != body {
		t.Errorf("%d %q, want %d %q", r.StatusCode, got, status, body)
	}
	if name != "" && r.Header.Get(name) != value {
		t.Errorf("%s: %q, want %q", name, r.Header.Get(name), value)
	}
}

func TestRouteWithFaultsIsRefused(t *testing.T) {
	for name, route := range map[string]Route{
		"accept": {Accept: "both"}, "policy": {Policy: "retry"}, "lease": {Lease: 1}, "retention": {Retention: -1}, "ack": {Ack: -1}, "body": {MaxBody: -1},
		"answer": {MaxAnswer: -1}, "keep": {Keep: []string{"2xx", "ok"}}, "keep of 1xx": {Keep: []string{"100"}}, "keep nothing": {Keep: []string{}},
		"header": {Headers: []string{"X Y"}}, "scope": {Scope: strings.Repeat("s", 201)},
	} {
		if err := route.Check(); err == nil {
			t.Errorf("%s: no fault", name)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			(&Tokens{}).Middleware(route)
		}()
	}
	if err := (Route{}).Check(); err != nil {
		t.Errorf("the zero route: %v", err)
	}
	if err := (Route{Lease: 1, Ack: 101}).Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two faults: %v", err)
	}
}

func TestRefusalLinksToThePolicy(t *testing.T) {
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{PolicyURL: "/policy"})
	guarded := tokens.Middleware(Route{Name: "r", MaxBody: 10})(&handler{})
	post(guarded, "x", "Idempotency-Key: used")
	const link = `</policy>; rel="describedby"`
	for name, row := range map[string]struct {
		body, header string
		code         wire.Code
		link         string
	}{
		"missing":   {"x", "", wire.KeyMissing, link},
		"malformed": {"x", "Idempotency-Key: a b", wire.KeyMalformed, link},
		"mismatch":  {"y", "Idempotency-Key: used", wire.PayloadMismatch, link},
		"too large": {strings.Repeat("x", 11), "Idempotency-Key: k", wire.PayloadTooLarge, ""},
	} {
		var headers []string
		if row.header != "" {
			headers = []string{row.header}
		}
		w := post(guarded, row.body, headers...)
		if codeOf(w) != row.code || w.Header().Get("Link") != row.link {
			t.Errorf("%s: %s, Link %q", name, w.Body, w.Header().Get("Link"))
		}
	}
	if w := post(embeddedTokens(t).Middleware(Route{})(&handler{}), "x"); w.Header().Get("Link") != "" {
		t.Errorf("without a policy page: %q", w.Header().Get("Link"))
	}
}
