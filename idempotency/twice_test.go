package idempotency

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// loggedTokens are tokens whose log is kept.
func loggedTokens(t *testing.T) (*Tokens, *logtest.Text) {
	t.Helper()
	log := &logtest.Text{}
	return newTokensWith(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}), Config{Logger: log.Logger()}), log
}

// A wrapper that somebody wrote for a framework answered by a replay, and the framework went on.
func TestHandlerThatRunsAfterItsGuardHasAnsweredIsNoticed(t *testing.T) {
	tokens, log := loggedTokens(t)
	h, runs := &handler{}, 0
	goesOn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran := false
		tokens.Middleware(Route{Name: "pay"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			h.ServeHTTP(w, r)
		})).ServeHTTP(w, r)
		if ran {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			runs++
		}
		expect.Error(t, "reading the body of a request that has been answered", err, errAnswered)
		expect.Equal(t, "what was read of it", string(body), "")
	})
	for i, row := range []struct{ body, key string }{{"a", "k"}, {"a", "k"}, {"other", "k"}, {"a", ""}, {"", "e"}, {"", "e"}} {
		var headers []string
		if row.key != "" {
			headers = []string{KeyHeader + ": " + row.key}
		}
		before := strings.Count(log.String(), "its guard has answered")
		post(goesOn, row.body, headers...)
		said := strings.Count(log.String(), "its guard has answered") - before
		expect.Equal(t, "how often the log says so", said, map[int]int{1: 1, 2: 1, 3: 1, 5: 1}[i])
	}
	h.wantRuns(t, 2)
	expect.Equal(t, "handlers that could go on after an answer", runs, 0)
	expect.Contains(t, "the log", log.String(), "route=pay")
	expect.Contains(t, "the log", log.String(), "c.Abort()")
}

func TestGuardWithinGuardSaysSo(t *testing.T) {
	for name, row := range map[string]struct {
		outer, inner Route
		headers      []string
		want         api.Code
		runs         int64
	}{
		"the same name":               {Route{Name: "pay"}, Route{Name: "pay"}, nil, api.InternalError, 0},
		"the same name, and patience": {Route{Name: "pay"}, Route{Name: "pay"}, []string{"Prefer: wait=30"}, api.InternalError, 0},
		"both under takeover":         {Route{Name: "pay", Policy: PolicyTakeover}, Route{Name: "pay", Policy: PolicyTakeover}, nil, api.InternalError, 0},
		"another fingerprint":         {Route{Name: "pay"}, Route{Name: "pay", Headers: []string{"Accept"}}, []string{"Accept: x"}, api.InternalError, 0},
		"by the path":                 {Route{}, Route{}, nil, api.InternalError, 0},
		"other names":                 {Route{Name: "all"}, Route{Name: "pay"}, nil, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, log := loggedTokens(t)
			h := &handler{}
			guarded := tokens.Middleware(row.outer)(tokens.Middleware(row.inner)(h))
			for i := range 2 {
				w := post(guarded, "pay", append(row.headers, KeyHeader+": k")...)
				if row.want == "" {
					wantStatus(t, "POST", w, 201)
					wantReplayed(t, "POST", w, i == 1)
					continue
				}
				wantCode(t, "POST", w, row.want)
				expect.Contains(t, "the answer", w.Body.String(), "guarded twice")
				wantReplayed(t, "POST", w, i == 1)
				wantHeader(t, "POST", w, NotBegunHeader, "")
			}
			h.wantRuns(t, row.runs)
			expect.Equal(t, "the log says so", strings.Contains(log.String(), "guarded twice"), row.want != "")
		})
	}
}

// What stands between two guards may have had its effect: the inner one cannot say that nothing was
// done.
func TestGuardWithinGuardFreesNoKey(t *testing.T) {
	t.Parallel()
	tokens, _ := loggedTokens(t)
	h, charges := &handler{}, 0
	inner := tokens.Middleware(Route{Name: "pay"})(h)
	guarded := tokens.Middleware(Route{Name: "pay"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges++
		inner.ServeHTTP(w, r)
	}))
	for range 3 {
		wantCode(t, "POST", post(guarded, "pay", KeyHeader+": k"), api.InternalError)
	}
	expect.Equal(t, "charges", charges, 1)
}

// The guard of a gateway before this one has another store: its claim is none here, and this guard
// tells what is true.
func TestGuardBehindAGatewayOfAnotherStoreTellsWhatIsTrue(t *testing.T) {
	t.Parallel()
	outer, _ := loggedTokens(t)
	tokens, _ := loggedTokens(t)
	entered, goesOn := make(chan struct{}), make(chan struct{})
	h := &handler{serve: func(_ http.ResponseWriter, r *http.Request) {
		attemptOf(r).Abandon()
		close(entered)
		<-goesOn
	}}
	inner := tokens.Middleware(Route{Name: "pay"})(h)
	asked := func() *httptest.ResponseRecorder {
		var behind *httptest.ResponseRecorder
		post(outer.Middleware(Route{Name: "pay"})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			attempt := attemptOf(r)
			attempt.Release()
			behind = post(inner, "pay", KeyHeader+": k", OperationHeader+": "+attempt.Operation, FenceHeader+": "+strconv.FormatInt(attempt.Fence, 10))
		})), "pay", KeyHeader+": k")
		return behind
	}
	var first sync.WaitGroup
	first.Go(func() { asked() })
	<-entered
	wantCode(t, "a repeat while the first attempt runs", post(inner, "pay", KeyHeader+": k", OperationHeader+": "+
		Key{Principal: mustPrincipal(t, tokens), Scope: "pay", ID: "k"}.Operation(), FenceHeader+": 1"), api.InProgress)
	close(goesOn)
	first.Wait()
	wantCode(t, "a repeat after it", asked(), api.IdempotencyUnknown)
}

func TestGuardBehindAGatewayOfTheSameStoreSaysSo(t *testing.T) {
	tokens, _ := loggedTokens(t)
	h := &handler{}
	outer := tokens.Middleware(Route{Name: "pay"})
	inner := tokens.Middleware(Route{Name: "pay"})(h)
	gateway := outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := FromContext(r.Context())
		behind := post(inner, "pay", KeyHeader+": k", OperationHeader+": "+attempt.Operation, FenceHeader+": "+strconv.FormatInt(attempt.Fence, 10))
		wantCode(t, "what the gateway gets", behind, api.InternalError)
		wantHeader(t, "what the gateway gets", behind, NotBegunHeader, "")
		w.WriteHeader(behind.Code)
	}))
	wantStatus(t, "POST", post(gateway, "pay", KeyHeader+": k"), 500)
	h.wantRuns(t, 0)
}

// The header alone is no claim: who makes it up gets what is true.
func TestOperationHeaderOfAClientChangesNothing(t *testing.T) {
	tokens, _ := loggedTokens(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{Name: "pay"})(h)
	principal, err := HeaderPrincipal("Authorization")(&http.Request{})
	expect.Error(t, "the principal of a request without credentials", err, nil)
	for i := range 2 {
		w := post(guarded, "pay", KeyHeader+": k", OperationHeader+": "+Key{Principal: principal, Scope: "pay", ID: "k"}.Operation())
		wantStatus(t, "POST", w, 201)
		wantReplayed(t, "POST", w, i == 1)
	}
	h.wantRuns(t, 1)
}
