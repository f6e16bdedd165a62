package idempotency

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// onRedis returns a private redis-server and the tokens on it, with a timeout that makes a hung server show soon.
func onRedis(t *testing.T) (*redistest.Server, *Tokens) {
	server := redistest.Start(t)
	return server, newTokens(t, storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 300 * time.Millisecond, AckTimeout: 100 * time.Millisecond}))
}

func TestNothingRunsWhenRedisIsDown(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{})(h)
	server.Kill()
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 503 || codeOf(w) != wire.StoreUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	server.Restart()
	eventually(t, "the same request runs", func() bool { return post(guarded, "pay", "Idempotency-Key: k").Code == 201 })
	if h.runs.Load() != 1 {
		t.Errorf("%d runs", h.runs.Load())
	}
}

func TestClaimOfUnknownOutcomeRunsNothingAndIsGivenBack(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{})(h)
	post(guarded, "warm up", "Idempotency-Key: other") // so that a connection is there to take the claim
	server.Pause()
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 503 || codeOf(w) != wire.OutcomeUnknown {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	server.Resume() // Redis now executes the claim that nobody waits for
	eventually(t, "the claim is given back and the repeat runs", func() bool { return post(guarded, "pay", "Idempotency-Key: k").Code == 201 })
	if h.runs.Load() != 2 {
		t.Errorf("%d runs, the warm-up included", h.runs.Load())
	}
}

func TestAnswerIsSentAndRecordedLaterWhenRedisHangsAtTheEnd(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		server.Pause()
		_, _ = io.WriteString(w, "paid")
	}}
	guarded := tokens.Middleware(Route{Name: "r"})(h)
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Code != 200 || w.Body.String() != "paid" {
		t.Errorf("first: %d %s", w.Code, w.Body)
	}
	server.Resume()
	eventually(t, "the answer is recorded", func() bool {
		status, err := tokens.Status(t.Context(), ClientKey("", "r", "k"))
		return err == nil && status.State == Completed
	})
	if w := post(guarded, "pay", "Idempotency-Key: k"); w.Body.String() != "paid" || h.runs.Load() != 1 {
		t.Errorf("again: %d %s, %d runs", w.Code, w.Body, h.runs.Load())
	}
}

func TestCloseWaitsForAnswersThatAreNotRecordedYet(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 300 * time.Millisecond, AckTimeout: 100 * time.Millisecond})
	tokens := New(store, Config{})
	h := &handler{serve: func(http.ResponseWriter, *http.Request) { server.Pause() }}
	post(tokens.Middleware(Route{Name: "r"})(h), "pay", "Idempotency-Key: k")

	closed := make(chan error)
	go func() { closed <- tokens.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Fatalf("closed with an answer open: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Resume()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	again := newTokens(t, store)
	eventually(t, "the answer is found recorded", func() bool { // the first look may meet a connection that the pause broke
		status, err := again.Status(t.Context(), ClientKey("", "r", "k"))
		return err == nil && status.State == Completed
	})
}

func TestLostRecordEndsTheHandlerAndItsAnswerIsStillSent(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		if err := server.Client().FlushAll(context.Background()).Err(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		_, _ = io.WriteString(w, "it happened")
	}}
	w := post(tokens.Middleware(Route{Lease: MinLease})(h), "pay", "Idempotency-Key: k")
	if w.Code != 200 || w.Body.String() != "it happened" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestFlushedRedisRefusesIssuedTokens(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{})(h)
	token, err := tokens.Issue(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if w := post(guarded, "pay", "Idempotency-Token: "+token.Value); w.Code != 410 || codeOf(w) != wire.TokenUnknown || h.runs.Load() != 0 {
		t.Errorf("%d %s, %d runs", w.Code, w.Body, h.runs.Load())
	}
}

func TestTooFewReplicasMeansThatNothingRuns(t *testing.T) {
	server := redistest.Start(t)
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: server.URL(), AckTimeout: 50 * time.Millisecond}))
	h := &handler{}
	w := post(tokens.Middleware(Route{Ack: 1})(h), "pay", "Idempotency-Key: k")
	if w.Code != 503 || codeOf(w) != wire.OutcomeUnknown || h.runs.Load() != 0 {
		t.Errorf("%d %s, %d runs", w.Code, w.Body, h.runs.Load())
	}
	eventually(t, "the claim is given back", func() bool {
		status, err := tokens.Status(t.Context(), ClientKey("", "POST /pay", "k"))
		return err == nil && status.State == Issued
	})
}
