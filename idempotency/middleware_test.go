package idempotency

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// codeOf is the problem code of an answer, "" if it is none.
func codeOf(w *httptest.ResponseRecorder) api.Code {
	var problem api.Problem
	if w.Header().Get("Content-Type") != "application/problem+json" {
		return ""
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		return api.Code(err.Error())
	}
	return problem.Code
}

func TestHandlerRunsOnceAndRepeatsGetItsAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		h := &handler{}
		guarded := newTokens(t, store).Middleware(Route{})(h)
		first := post(guarded, "pay", "Idempotency-Key: k1")
		again := post(guarded, "pay", `Idempotency-Key: "k1"`)

		wantStatus(t, "the first request", first, 201)
		wantHeader(t, "the first request", first, "Set-Cookie", "session=secret")
		wantReplayed(t, "the first request", first, false)
		expect.Equal(t, "the request again", statusAndBody(again), statusAndBody(first))
		wantHeader(t, "the request again", again, "Location", "/payments/1")
		wantHeader(t, "the request again", again, "Set-Cookie", "")
		wantReplayed(t, "the request again", again, true)
		wantCode(t, "another payload", post(guarded, "pay more", "Idempotency-Key: k1"), api.PayloadMismatch)
		h.wantRuns(t, 1)
	})
}

func TestFingerprintCoversMethodRoutePathQueryAndBody(t *testing.T) {
	seen := map[string]string{}
	for _, row := range []struct{ method, route, target, body string }{
		{"POST", "r", "/pay", "a"}, {"PUT", "r", "/pay", "a"}, {"POST", "s", "/pay", "a"}, {"POST", "r", "/pay/1", "a"},
		{"POST", "r", "/pay?x=1", "a"}, {"POST", "r", "/pay", "b"}, {"POST", "r", "/pay", ""}, {"POST", "r", "/pa", "ya"},
	} {
		fingerprint, err := takeBody(httptest.NewRequest(row.method, row.target, strings.NewReader(row.body)), row.route, Route{MaxBody: 100})
		expect.NoError(t, fmt.Sprintf("the fingerprint of %v", row), err)
		if other, ok := seen[fingerprint]; ok {
			t.Errorf("%v has the fingerprint of %s", row, other)
		}
		seen[fingerprint] = row.method + " " + row.target
	}
}

func TestManyAtOnceStartOneHandler(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		release := make(chan struct{})
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
			<-release
			_, _ = io.WriteString(w, "one answer")
		}}
		doors := []http.Handler{ // two processes on one Redis
			newTokens(t, store).Middleware(Route{Name: "r", Lease: time.Hour})(h),
			newTokens(t, store).Middleware(Route{Name: "r", Lease: time.Hour})(h),
		}
		var wg sync.WaitGroup
		answers := make([]*httptest.ResponseRecorder, 50)
		var refused sync.WaitGroup
		refused.Add(len(answers) - 1)
		for i := range answers {
			wg.Go(func() {
				answers[i] = post(doors[i%2], "pay", "Idempotency-Key: k")
				if codeOf(answers[i]) == api.InProgress {
					refused.Done()
				}
			})
		}
		refused.Wait() // all but one have got "in progress"
		close(release)
		wg.Wait()
		h.wantRuns(t, 1)
		expect.Equal(t, "a request afterwards", statusAndBody(post(doors[0], "pay", "Idempotency-Key: k")), "200 one answer")
	})
}

func TestRouteWithoutAHeader(t *testing.T) {
	tokens := embeddedTokens(t)
	h := &handler{}
	wantCode(t, "no header where one is required", post(tokens.Middleware(Route{})(h), ""), api.KeyMissing)
	h.wantRuns(t, 0)
	wantStatus(t, "no header where it is optional", post(tokens.Middleware(Route{Optional: true})(h), ""), 201)
	h.wantRuns(t, 1)
	wantCode(t, "a malformed header where it is optional", post(tokens.Middleware(Route{Optional: true})(h), "", "Idempotency-Key: a, b"), api.KeyMalformed)
	h.wantRuns(t, 1)
}

func TestHandlerSeesTheBodyAndItsAttempt(t *testing.T) {
	var body string
	var attempt *Attempt
	h := &handler{serve: func(_ http.ResponseWriter, r *http.Request) {
		bytes, _ := io.ReadAll(r.Body)
		body = string(bytes)
		attempt, _ = FromContext(r.Context())
	}}
	w := post(embeddedTokens(t).Middleware(Route{})(h), "the body", "Idempotency-Key: k")
	wantStatus(t, "the request", w, 200)
	expect.Equal(t, "body that the handler saw", body, "the body")
	if attempt == nil || attempt.Number != 1 || attempt.Fence == 0 {
		t.Errorf("attempt that the handler saw: got %+v, want number 1, with a fence", attempt)
	}
	if attempt, ok := FromContext(t.Context()); ok {
		t.Errorf("FromContext outside of a guarded handler: got %+v, want none", attempt)
	}
}

func TestBodyOverTheLimitIsRefusedAndNothingIsClaimed(t *testing.T) {
	tokens := embeddedTokens(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{MaxBody: 10})(h)
	wantCode(t, "a body over the limit", post(guarded, "12345678901", "Idempotency-Key: k"), api.PayloadTooLarge)
	h.wantRuns(t, 0)
	wantStatus(t, "a body at the limit", post(guarded, "1234567890", "Idempotency-Key: k"), 201)
	h.wantRuns(t, 1)

	lower := post(http.MaxBytesHandler(tokens.Middleware(Route{})(h), 10), "12345678901", "Idempotency-Key: l")
	wantCode(t, "a body over the limit of a handler outside", lower, api.PayloadTooLarge)
	expect.Contains(t, "its problem", lower.Body.String(), " 10 bytes at most")
}

func TestPanicLeavesTheTokenInDoubtAtOnce(t *testing.T) {
	h := &handler{serve: func(http.ResponseWriter, *http.Request) { panic("half done") }}
	guarded := embeddedTokens(t).Middleware(Route{})(h)
	expect.Equal(t, "the panic goes on", saidBy(func() { post(guarded, "pay", "Idempotency-Key: k") }), "half done")
	wantCode(t, "a request after the panic", post(guarded, "pay", "Idempotency-Key: k"), api.IdempotencyUnknown)
	h.wantRuns(t, 1)
}

func TestHandlerOutlivesTheClientsHangUp(t *testing.T) {
	began, hungUp := make(chan struct{}), make(chan struct{})
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-hungUp
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}}
	guarded := embeddedTokens(t).Middleware(Route{})(h)
	ctx, hangUp := context.WithCancel(t.Context())
	request := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader("pay")).WithContext(ctx)
	request.Header.Set(KeyHeader, "k")
	var wg sync.WaitGroup
	wg.Go(func() { guarded.ServeHTTP(httptest.NewRecorder(), request) })
	<-began
	hangUp()
	close(hungUp)
	wg.Wait()
	w := post(guarded, "pay", "Idempotency-Key: k")
	wantStatus(t, "a request after the hang-up", w, 200)
	wantReplayed(t, "a request after the hang-up", w, true)
}

func TestAnswerOverTheLimitIsSentOnceAndNeverRunAgain(t *testing.T) {
	large := strings.Repeat("x", 50)
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/big")
		w.WriteHeader(http.StatusAccepted)
		for range 10 {
			if _, err := io.WriteString(w, large); err != nil {
				panic(err)
			}
			w.(http.Flusher).Flush()
		}
	}}
	guarded := embeddedTokens(t).Middleware(Route{MaxAnswer: 120})(h)
	w := post(guarded, "pay", "Idempotency-Key: k")
	expect.Equal(t, "the first request", statusAndBody(w), "202 "+strings.Repeat(large, 10))
	expect.Equal(t, "the first answer was flushed", w.Flushed, true)
	w = post(guarded, "pay", "Idempotency-Key: k")
	expect.Equal(t, "the request again", statusAndBody(w), "202 ")
	wantHeader(t, "the request again", w, "Idempotent-Body", "not-kept")
	wantHeader(t, "the request again", w, "Location", "/big")
	h.wantRuns(t, 1)
}

func TestNothingIsSentBeforeItIsRecorded(t *testing.T) {
	tokens := embeddedTokens(t)
	var w *httptest.ResponseRecorder
	h := &handler{serve: func(inner http.ResponseWriter, _ *http.Request) {
		inner.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(inner, "answer")
		inner.(http.Flusher).Flush()
		if w.Body.Len() != 0 || w.Flushed {
			t.Errorf("sent while the handler runs: got %d bytes, flushed %v, want nothing", w.Body.Len(), w.Flushed)
		}
	}}
	w = httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.Header.Set(KeyHeader, "k")
	tokens.Middleware(Route{Name: "r"})(h).ServeHTTP(w, request)
	expect.Equal(t, "the request", statusAndBody(w), "200 answer")
	wantState(t, tokens, Key{Scope: "r", ID: "k"}, StateCompleted)
}

// watcher records the state of the token when an answer begins to leave.
type watcher struct {
	*httptest.ResponseRecorder
	watch func()
	once  sync.Once
}

func (l *watcher) WriteHeader(status int) {
	l.once.Do(l.watch)
	l.ResponseRecorder.WriteHeader(status)
}

func (l *watcher) Write(bytes []byte) (int, error) {
	l.once.Do(l.watch)
	return l.ResponseRecorder.Write(bytes)
}

func TestTokenIsCompletedWhenItsAnswerBeginsToLeave(t *testing.T) {
	for name, size := range map[string]int{"kept": 10, "over the limit": 1000} {
		tokens := embeddedTokens(t)
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }}
		var found Operation
		var err error
		w := &watcher{ResponseRecorder: httptest.NewRecorder()}
		w.watch = func() { found, err = tokens.Status(t.Context(), Key{Scope: "r", ID: "k"}) }
		request := httptest.NewRequest(http.MethodPost, "/pay", nil)
		request.Header.Set(KeyHeader, "k")
		tokens.Middleware(Route{Name: "r", MaxAnswer: 100})(h).ServeHTTP(w, request)
		expect.Error(t, name+": Status when the answer begins to leave", err, nil)
		expect.Equal(t, name+": state when the answer begins to leave", found.State, StateCompleted)
		expect.Equal(t, name+": bytes of the answer", w.Body.Len(), size)
	}
}

func TestTwoPrincipalsNeverMeet(t *testing.T) {
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{Principal: func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }})
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "for "+r.Header.Get("User")) }}
	guarded := tokens.Middleware(Route{})(h)
	for _, user := range []string{"ann", "bob", "ann"} {
		expect.Equal(t, "a request of "+user, statusAndBody(post(guarded, "pay", "Idempotency-Key: k", "User: "+user)), "200 for "+user)
	}
	h.wantRuns(t, 2)
}

// With the zero Config two callers are two principals by their Authorization header. The same key
// and body get each caller its own answer, and a token is the principal's for whom it was issued.
func TestZeroConfigNeverReplaysOneCallersAnswerToAnother(t *testing.T) {
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{})
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "for "+strings.Join(r.Header.Values("Authorization"), "+"))
	}}
	guarded := tokens.Middleware(Route{})(h)
	callers := map[string][]string{
		"for Bearer ann": {"Authorization: Bearer ann"}, "for Bearer bob": {"Authorization: Bearer bob"}, "for bearer ann": {"Authorization: bearer ann"},
		"for ": nil, "for Bearer ann+Bearer bob": {"Authorization: Bearer ann", "Authorization: Bearer bob"},
	}
	for _, replayed := range []bool{false, true} {
		for answer, headers := range callers {
			w := post(guarded, "pay", append(headers, "Idempotency-Key: k")...)
			expect.Equal(t, "the same key and body, asked as "+answer, statusAndBody(w), "200 "+answer)
			wantReplayed(t, "the same key and body, asked as "+answer, w, replayed)
		}
	}
	h.wantRuns(t, int64(len(callers)))

	request := httptest.NewRequest(http.MethodPost, "/token", http.NoBody)
	request.Header.Set("Authorization", "Bearer ann")
	ann, err := HeaderPrincipal("Authorization")(request)
	expect.Error(t, "HeaderPrincipal", err, nil)
	token, err := tokens.Issue(t.Context(), ann, "", 0)
	expect.Error(t, "Issue", err, nil)
	for range 2 { // before ann has used it, and after
		for _, other := range []string{"Authorization: Bearer bob", "X-None: 1"} {
			wantCode(t, "ann's token with "+other, post(guarded, "pay", TokenHeader+": "+token.Value, other), api.TokenUnknown)
		}
		expect.Equal(t, "ann's token, used by ann", statusAndBody(post(guarded, "pay", TokenHeader+": "+token.Value, "Authorization: Bearer ann")), "200 for Bearer ann")
	}
	h.wantRuns(t, int64(len(callers))+1)
}

func TestRoutesAreThoseThatAreGuarded(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	tokens := New(store, Config{})
	handler := http.NotFoundHandler()
	tokens.Handle(http.NewServeMux(), "POST /payments", Route{}, handler)
	tokens.Handle(http.NewServeMux(), "POST /orders", Route{Name: "orders"}, handler)
	tokens.Middleware(Route{Name: "all"})(handler)
	tokens.Middleware(Route{})(handler) // each request has a name of its own
	expect.Equal(t, "Routes", tokens.Routes(), []string{"POST /payments", "all", "orders"})
}
