package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// codeOf is the problem code of an answer, "" if it is none.
func codeOf(w *httptest.ResponseRecorder) wire.Code {
	var problem wire.Problem
	if w.Header().Get("Content-Type") != "application/problem+json" {
		return ""
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		return wire.Code(err.Error())
	}
	return problem.Code
}

func TestHandlerRunsOnceAndRepeatsGetItsAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		h := &handler{}
		guarded := newTokens(t, store).Middleware(Route{})(h)
		first := post(guarded, "pay", "Idempotency-Key: k1")
		again := post(guarded, "pay", `Idempotency-Key: "k1"`)

		if first.Code != 201 || first.Header().Get("Set-Cookie") == "" || first.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("first: %d %v", first.Code, first.Header())
		}
		if again.Code != 201 || again.Body.String() != first.Body.String() || again.Header().Get("Location") != "/payments/1" {
			t.Errorf("again: %d %v %s", again.Code, again.Header(), again.Body)
		}
		if again.Header().Get("Set-Cookie") != "" || again.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("the replay's headers: %v", again.Header())
		}
		if other := post(guarded, "pay more", "Idempotency-Key: k1"); other.Code != 422 || codeOf(other) != wire.PayloadMismatch {
			t.Errorf("another payload: %d %s", other.Code, other.Body)
		}
		if h.runs.Load() != 1 {
			t.Errorf("%d runs", h.runs.Load())
		}
	})
}

func TestFingerprintCoversMethodRoutePathQueryAndBody(t *testing.T) {
	seen := map[string]string{}
	for _, row := range []struct{ method, route, target, body string }{
		{"POST", "r", "/pay", "a"}, {"PUT", "r", "/pay", "a"}, {"POST", "s", "/pay", "a"}, {"POST", "r", "/pay/1", "a"},
		{"POST", "r", "/pay?x=1", "a"}, {"POST", "r", "/pay", "b"}, {"POST", "r", "/pay", ""}, {"POST", "r", "/pa", "ya"},
	} {
		fingerprint, err := takeBody(httptest.NewRequest(row.method, row.target, strings.NewReader(row.body)), row.route, Route{MaxBody: 100})
		if err != nil {
			t.Fatal(err)
		}
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
			newTokens(t, store).Middleware(Route{Name: "r"})(h),
			newTokens(t, store).Middleware(Route{Name: "r"})(h),
		}
		var wg sync.WaitGroup
		answers := make([]*httptest.ResponseRecorder, 50)
		var refused sync.WaitGroup
		refused.Add(len(answers) - 1)
		for i := range answers {
			wg.Go(func() {
				answers[i] = post(doors[i%2], "pay", "Idempotency-Key: k")
				if codeOf(answers[i]) == wire.InProgress {
					refused.Done()
				}
			})
		}
		refused.Wait() // everybody but one has been told that it is in progress
		close(release)
		wg.Wait()
		if h.runs.Load() != 1 {
			t.Errorf("%d runs", h.runs.Load())
		}
		if again := post(doors[0], "pay", "Idempotency-Key: k"); again.Body.String() != "one answer" {
			t.Errorf("afterwards: %d %s", again.Code, again.Body)
		}
	})
}

func TestRouteWithoutAHeader(t *testing.T) {
	tokens := embeddedTokens(t)
	h := &handler{}
	if w := post(tokens.Middleware(Route{})(h), ""); w.Code != 400 || codeOf(w) != wire.KeyMissing || h.runs.Load() != 0 {
		t.Errorf("required: %d %s, %d runs", w.Code, w.Body, h.runs.Load())
	}
	if w := post(tokens.Middleware(Route{Optional: true})(h), ""); w.Code != 201 || h.runs.Load() != 1 {
		t.Errorf("optional: %d %s, %d runs", w.Code, w.Body, h.runs.Load())
	}
	if w := post(tokens.Middleware(Route{Optional: true})(h), "", "Idempotency-Key: a, b"); codeOf(w) != wire.KeyMalformed || h.runs.Load() != 1 {
		t.Errorf("optional but malformed: %d %s", w.Code, w.Body)
	}
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
	if w.Code != 200 || body != "the body" || attempt == nil || attempt.Number != 1 || attempt.Fence == 0 {
		t.Errorf("%d, body %q, attempt %+v", w.Code, body, attempt)
	}
	if _, ok := FromContext(t.Context()); ok {
		t.Error("an attempt outside of a guarded handler")
	}
}

func TestBodyOverTheLimitIsRefusedAndNothingIsClaimed(t *testing.T) {
	tokens := embeddedTokens(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{MaxBody: 10})(h)
	if w := post(guarded, "12345678901", "Idempotency-Key: k"); w.Code != 413 || codeOf(w) != wire.PayloadTooLarge {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(guarded, "1234567890", "Idempotency-Key: k"); w.Code != 201 || h.runs.Load() != 1 {
		t.Errorf("at the limit: %d %s", w.Code, w.Body)
	}
}

func TestBodyThatBreaksOffClaimsNothing(t *testing.T) {
	h := &handler{}
	guarded := embeddedTokens(t).Middleware(Route{})(h)
	request := httptest.NewRequest(http.MethodPost, "/pay", io.MultiReader(strings.NewReader("half"), brokenReader{}))
	request.Header.Set(KeyHeader, "k")
	w := httptest.NewRecorder()
	guarded.ServeHTTP(w, request)
	if codeOf(w) != wire.InvalidRequest || h.runs.Load() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("connection lost") }

func TestErrorsOfTheHandlerAreAnswersLikeAnyOther(t *testing.T) {
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "declined", http.StatusPaymentRequired) }}
	guarded := embeddedTokens(t).Middleware(Route{})(h)
	for range 3 {
		if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 402 || w.Body.String() != "declined\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if h.runs.Load() != 1 {
		t.Errorf("%d runs", h.runs.Load())
	}
}

func TestNotBegunGivesTheTokenBackForACorrectedRequest(t *testing.T) {
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "wrong" {
			attempt, _ := FromContext(r.Context())
			attempt.NotBegun()
			http.Error(w, "amount is missing", http.StatusBadRequest)
		}
	}}
	guarded := embeddedTokens(t).Middleware(Route{})(h)
	for _, row := range []struct {
		body string
		want int
	}{{"wrong", 400}, {"wrong", 400}, {"right", 200}, {"right", 200}} {
		if w := post(guarded, row.body, "Idempotency-Key: k"); w.Code != row.want {
			t.Errorf("%s: %d %s", row.body, w.Code, w.Body)
		}
	}
	if h.runs.Load() != 3 {
		t.Errorf("%d runs", h.runs.Load())
	}
}

func TestPanicLeavesTheTokenInDoubtAtOnce(t *testing.T) {
	h := &handler{serve: func(http.ResponseWriter, *http.Request) { panic("half done") }}
	guarded := embeddedTokens(t).Middleware(Route{})(h)
	func() {
		defer func() {
			if recover() != "half done" {
				t.Error("the panic did not go on")
			}
		}()
		post(guarded, "pay", "Idempotency-Key: k")
	}()
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 409 || codeOf(w) != wire.IdempotencyUnknown || h.runs.Load() != 1 {
		t.Errorf("%d %s, %d runs", w.Code, w.Body, h.runs.Load())
	}
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
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
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
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 202 || w.Body.Len() != 500 || !w.Flushed {
		t.Errorf("first: %d, %d bytes, flushed %v", w.Code, w.Body.Len(), w.Flushed)
	}
	w := post(guarded, "pay", "Idempotency-Key: k")
	if w.Code != 202 || w.Body.Len() != 0 || w.Header().Get("Idempotent-Body") != "not-kept" || w.Header().Get("Location") != "/big" || h.runs.Load() != 1 {
		t.Errorf("again: %d %v, %d bytes, %d runs", w.Code, w.Header(), w.Body.Len(), h.runs.Load())
	}
}

func TestNothingIsSentBeforeItIsRecorded(t *testing.T) {
	tokens := embeddedTokens(t)
	var w *httptest.ResponseRecorder
	h := &handler{serve: func(inner http.ResponseWriter, _ *http.Request) {
		inner.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(inner, "answer")
		inner.(http.Flusher).Flush()
		if w.Body.Len() != 0 || w.Flushed {
			t.Error("something was sent while the handler runs")
		}
	}}
	w = httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.Header.Set(KeyHeader, "k")
	tokens.Middleware(Route{Name: "r"})(h).ServeHTTP(w, request)
	if w.Code != 200 || w.Body.String() != "answer" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantState(t, tokens, ClientKey("", "r", "k"), Completed)
}

// looker notes, at the moment when an answer begins to leave, where its token stands.
type looker struct {
	*httptest.ResponseRecorder
	look func()
	once sync.Once
}

func (l *looker) WriteHeader(status int) {
	l.once.Do(l.look)
	l.ResponseRecorder.WriteHeader(status)
}

func (l *looker) Write(bytes []byte) (int, error) {
	l.once.Do(l.look)
	return l.ResponseRecorder.Write(bytes)
}

func TestTokenIsCompletedWhenItsAnswerBeginsToLeave(t *testing.T) {
	for name, size := range map[string]int{"kept": 10, "over the limit": 1000} {
		tokens := embeddedTokens(t)
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }}
		var found Status
		var err error
		w := &looker{ResponseRecorder: httptest.NewRecorder()}
		w.look = func() { found, err = tokens.Status(t.Context(), ClientKey("", "r", "k")) }
		request := httptest.NewRequest(http.MethodPost, "/pay", nil)
		request.Header.Set(KeyHeader, "k")
		tokens.Middleware(Route{Name: "r", MaxAnswer: 100})(h).ServeHTTP(w, request)
		if err != nil || found.State != Completed || w.Body.Len() != size {
			t.Errorf("%s: the token is %q when %d bytes leave, %v", name, found.State, w.Body.Len(), err)
		}
	}
}

func TestTwoPrincipalsNeverMeet(t *testing.T) {
	tokens := New(storetest.Open(t, redisstore.Config{}), Config{Principal: func(r *http.Request) string { return r.Header.Get("User") }})
	t.Cleanup(func() { _ = tokens.Close(context.Background()) })
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "for "+r.Header.Get("User")) }}
	guarded := tokens.Middleware(Route{})(h)
	for _, user := range []string{"ann", "bob", "ann"} {
		if w := post(guarded, "pay", "Idempotency-Key: k", "User: "+user); w.Body.String() != "for "+user {
			t.Errorf("%s was answered %q", user, w.Body)
		}
	}
	if h.runs.Load() != 2 {
		t.Errorf("%d runs", h.runs.Load())
	}
}

func TestRouteOutOfBoundsPanicsAtStartUp(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a route with a policy that does not exist was taken")
		}
	}()
	embeddedTokens(t).Middleware(Route{Policy: "maybe"})
}
