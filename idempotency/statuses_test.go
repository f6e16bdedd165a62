package idempotency

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The time limit of a server or a proxy answers while the work runs on.
func TestTimeLimitWithinTheGuardLeavesTheTokenInDoubt(t *testing.T) {
	held := make(chan struct{})
	defer close(held)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held })
	tokens := embeddedTokens(t)
	guarded := tokens.Middleware(Route{Name: "r"})(http.TimeoutHandler(slow, time.Millisecond, "too late"))
	wantStatus(t, "the first request", post(guarded, "x", "Idempotency-Key: k"), 503)
	wantState(t, tokens, Key{Scope: "r", ID: "k"}, StateInDoubt)
	wantCode(t, "the request again", post(guarded, "x", "Idempotency-Key: k"), api.IdempotencyUnknown)
}

// A handler whose time is over and which answers nothing has told nothing: net/http would make an
// empty 200 of it. The answer is that of what limits the time, here as chi's middleware.Timeout.
func TestHandlerThatEndsWithItsTimeAndAnswersNothingLeavesTheTokenInDoubt(t *testing.T) {
	ended := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, row := range map[string]struct {
		serve  http.HandlerFunc
		status int
		state  State
	}{
		"nothing":          {ended, 504, StateInDoubt},
		"a header alone":   {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-A", "b"); ended(w, r) }, 504, StateInDoubt},
		"never begun":      {func(w http.ResponseWriter, r *http.Request) { ended(w, r); attemptOf(r).Release() }, 504, forgotten},
		"an answer before": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusAccepted); ended(w, r) }, 202, StateCompleted},
		"an answer after":  {func(w http.ResponseWriter, r *http.Request) { ended(w, r); w.WriteHeader(http.StatusAccepted) }, 202, StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := embeddedTokens(t)
				guarded := tokens.Middleware(Route{Name: "r"})(row.serve)
				limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, cancel := context.WithTimeout(r.Context(), time.Second)
					defer cancel()
					if guarded.ServeHTTP(w, r.WithContext(ctx)); ctx.Err() != nil {
						w.WriteHeader(http.StatusGatewayTimeout)
					}
				})
				for key := range 50 { // two timers that are due at once end in either order
					first := post(limited, "x", "Idempotency-Key: "+strconv.Itoa(key))
					wantStatus(t, "the first request", first, row.status)
					wantState(t, tokens, Key{Scope: "r", ID: strconv.Itoa(key)}, row.state)
				}
			})
		})
	}
}

func attemptOf(r *http.Request) *Attempt {
	attempt, _ := FromContext(r.Context())
	return attempt
}

func TestStatusThatIsNoneLeavesTheTokenInDoubt(t *testing.T) {
	for status, body := range map[int]string{600: "odd", 999: "", 799: "larger than the route keeps"} {
		tokens := embeddedTokens(t)
		guarded := tokens.Middleware(Route{Name: "r", MaxAnswer: 10})(&handler{serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}})
		expect.Equal(t, "the first request", statusAndBody(post(guarded, "x", "Idempotency-Key: k")), fmt.Sprint(status, " ", body))
		wantState(t, tokens, Key{Scope: "r", ID: "k"}, StateInDoubt)
	}
	for _, status := range []int{-1, 0, 99, 1000} {
		tokens := embeddedTokens(t)
		guarded := tokens.Middleware(Route{Name: "r"})(&handler{serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }})
		if saidBy(func() { post(guarded, "", "Idempotency-Key: k") }) == "" {
			t.Errorf("status %d: got no panic", status)
		}
		wantState(t, tokens, Key{Scope: "r", ID: "k"}, StateInDoubt)
	}
}

// An answer that is kept though services mostly ask with it for the request again is told, once.
func TestAnswerThatMayAskAgainIsTold(t *testing.T) {
	for _, row := range []struct {
		name   string
		route  Route
		status int
		after  string // Retry-After
		told   int
	}{
		{"429", Route{}, 429, "", 1},
		{"307", Route{}, 307, "", 1},
		{"503 with Retry-After", Route{Doubts: []string{}}, 503, "1", 1},
		{"503", Route{Doubts: []string{}}, 503, "", 0},
		{"404", Route{}, 404, "", 0},
		{"429 that is an answer", Route{Keep: []string{"429"}}, 429, "", 0},
		{"429 that frees the key", Route{Frees: []string{"429"}}, 429, "", 0},
		{"429 that leaves it in doubt", Route{Doubts: []string{"429"}}, 429, "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
			log := &logtest.Text{}
			tokens := New(store, Config{Logger: log.Logger()})
			row.route.Name = "POST /pay"
			guarded := tokens.Middleware(row.route)(&handler{serve: func(w http.ResponseWriter, _ *http.Request) {
				if row.after != "" {
					w.Header().Set("Retry-After", row.after)
				}
				w.WriteHeader(row.status)
			}})
			for i := range 3 {
				post(guarded, "x", fmt.Sprintf("Idempotency-Key: %d", i))
			}
			expect.Equal(t, "lines of the log about it", strings.Count(log.String(), "may ask for the request again"), row.told)
		})
	}
}

func TestListsOfStatusesAreChecked(t *testing.T) {
	for want, route := range map[string]Route{
		`keep: status "6xx"`:                    {Keep: []string{"6xx"}},
		`frees: status "1xx"`:                   {Frees: []string{"1xx"}},
		`doubts: status "teapot"`:               {Doubts: []string{"teapot"}},
		"frees: status 503 is in another list":  {Frees: []string{"503"}, Keep: []string{"503"}},
		"doubts: status 5xx is in another list": {Frees: []string{"5xx"}, Doubts: []string{"5xx"}},
		"keep: at least one":                    {Keep: []string{}},
	} {
		err := route.Check()
		if err == nil {
			t.Errorf("%v: got no error, want %q", route, want)
			continue
		}
		expect.Contains(t, "the error", err.Error(), want)
	}
	for _, route := range []Route{{}, {Keep: []string{"5xx", "503"}}, {Frees: []string{"503"}, Doubts: []string{"5xx"}}, {Keep: []string{"503"}}} {
		expect.NoError(t, fmt.Sprint(route.Keep, route.Frees, route.Doubts), route.Check())
	}
}

// A part of a body, and "not modified", are answers to who asked for them alone.
func TestAnswerToARangeOrAConditionIsReplayedToSuchARequestOnly(t *testing.T) {
	for status, header := range map[int]string{206: "Range: bytes=0-1", 304: `If-None-Match: "v1"`} {
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Age", "7"); w.WriteHeader(status) }}
		guarded := embeddedTokens(t).Middleware(Route{Name: "r"})(h)
		wantStatus(t, "the first request", post(guarded, "x", "Idempotency-Key: k", header), status)
		wantCode(t, "a repeat without", post(guarded, "x", "Idempotency-Key: k"), api.AnswerConditional)
		again := post(guarded, "x", "Idempotency-Key: k", header)
		wantStatus(t, "a repeat", again, status)
		wantHeader(t, "a repeat", again, "Age", "")
		h.wantRuns(t, 1)
	}
}
