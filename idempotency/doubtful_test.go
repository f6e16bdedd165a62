package idempotency

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A handler that a TimeoutHandler has given up on goes on: its 503 is no answer to record.
func TestTimeoutHandlerWithinTheGuardLeavesTheTokenInDoubt(t *testing.T) {
	held := make(chan struct{})
	defer close(held)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held })
	nested := http.NewServeMux()
	nested.Handle("/", http.TimeoutHandler(slow, time.Millisecond, "too late"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, within := range map[string]http.Handler{
		"with the usual text":   http.TimeoutHandler(slow, time.Millisecond, ""),
		"with a text":           http.TimeoutHandler(slow, time.Millisecond, "too late"),
		"within a mux":          nested,
		"inside a wrapper":      wrapped(http.TimeoutHandler(slow, time.Millisecond, "too late")),
		"of an attempt that is": withContext(ended, http.TimeoutHandler(slow, time.Hour, "")),
	} {
		t.Run(name, func(t *testing.T) {
			tokens := embeddedTokens(t)
			guarded := tokens.Middleware(Route{Name: "r"})(within)
			wantStatus(t, "the first request", post(guarded, "x", "Idempotency-Key: k"), 503)
			wantState(t, tokens, ClientKey("", "r", "k"), InDoubt)
			wantCode(t, "the request again", post(guarded, "x", "Idempotency-Key: k"), api.IdempotencyUnknown)
		})
	}
}

func TestAnswerWithinATimeoutHandlerIsRecorded(t *testing.T) {
	for _, status := range []int{200, 404, 503} {
		for _, body := range []string{"", "an answer"} {
			tokens := embeddedTokens(t)
			h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}}
			for _, within := range []http.Handler{h, wrapped(h)} {
				guarded := tokens.Middleware(Route{Name: "r"})(wrapped(http.TimeoutHandler(within, time.Hour, "")))
				for range 2 {
					expect.Equal(t, "a request", statusAndBody(post(guarded, "x", "Idempotency-Key: k")), fmt.Sprint(status, " ", body))
				}
			}
			wantState(t, tokens, ClientKey("", "r", "k"), Completed)
			h.wantRuns(t, 1)
		}
	}
}

// wrapped passes requests on with a writer of its own, as middleware does that counts bytes.
func wrapped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
}

func withContext(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.WithContext(ctx)) })
}

func TestStatusThatIsNoneLeavesTheTokenInDoubt(t *testing.T) {
	for status, body := range map[int]string{600: "odd", 999: "", 799: "larger than the route keeps"} {
		tokens := embeddedTokens(t)
		guarded := tokens.Middleware(Route{Name: "r", MaxAnswer: 10})(&handler{serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}})
		expect.Equal(t, "the first request", statusAndBody(post(guarded, "x", "Idempotency-Key: k")), fmt.Sprint(status, " ", body))
		wantState(t, tokens, ClientKey("", "r", "k"), InDoubt)
	}
	for _, status := range []int{-1, 0, 99, 1000} {
		tokens := embeddedTokens(t)
		guarded := tokens.Middleware(Route{Name: "r"})(&handler{serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }})
		if saidBy(func() { post(guarded, "", "Idempotency-Key: k") }) == "" {
			t.Errorf("status %d: got no panic", status)
		}
		wantState(t, tokens, ClientKey("", "r", "k"), InDoubt)
	}
}
