package idempotency

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestHeartbeatKeepsALongHandlersClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{serve: func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }}
		tokens := embeddedTokens(t)
		guarded := tokens.Middleware(Route{Lease: 10 * time.Second})(h)
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- post(guarded, "pay", "Idempotency-Key: k") }()
		for range 50 {
			time.Sleep(time.Minute)
			wantCode(t, "a request while the handler runs", post(guarded, "pay", "Idempotency-Key: k"), api.InProgress)
		}
		wantStatus(t, "the request of the handler that took an hour", <-done, 200)
		h.wantRuns(t, 1)
	})
}

func TestSupersededHandlerIsCancelledAndItsClientGetsTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		causes := make(chan error, 1)
		h := &handler{serve: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			causes <- context.Cause(r.Context())
		}}
		guarded := tokens.Middleware(Route{Name: "r", Policy: PolicyTakeover, Lease: 3 * time.Second})(h)
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- post(guarded, "pay", "Idempotency-Key: k") }()
		time.Sleep(time.Second / 2)

		// The claim lapses, as in a pause of the process, and another attempt takes over before the
		// next heartbeat.
		key := Key{Scope: "r", ID: "k"}
		keys := tokens.keys(key)
		fingerprint := lapse(t, tokens, keys[0])
		claim(t, tokens, key, ClaimOptions{Fingerprint: fingerprint, Policy: PolicyTakeover, Lease: time.Hour})

		expect.Error(t, "cause of the end of the handler's context", <-causes, ErrSuperseded)
		wantCode(t, "the superseded request", <-done, api.Superseded)
		wantState(t, tokens, key, StateClaimed)
	})
}

// started is the run of a claim of nine seconds that was granted just now.
func started(tokens *Tokens, policy Policy) *run {
	return &run{tokens: tokens, key: IssuedToken("", "x"), owner: "owner", options: ClaimOptions{Policy: policy, Lease: 9 * time.Second}, claimed: time.Now(), detached: context.Background()}
}

func TestUnderTakeoverAHandlerEndsByItsOwnClockWhenTheStoreFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		claimed := time.Now()
		beat := started(tokens, PolicyTakeover).heartbeat(cancel)
		beat.Stop() // no heartbeat arrives any more
		if ctx.Err() != nil {
			t.Fatal("a heartbeat that was stopped in time ended the handler")
		}

		silent := newSilentTokens(t)
		ctx, cancel = context.WithCancelCause(t.Context())
		beat = started(silent, PolicyTakeover).heartbeat(cancel)
		<-ctx.Done()
		if after := time.Since(claimed); after != 9*time.Second || !errors.Is(context.Cause(ctx), ErrSuperseded) {
			t.Errorf("the handler's context ended after %v because of %v, want after 9s because of %v", after, context.Cause(ctx), ErrSuperseded)
		}
		beat.Stop()

		ctx, cancel = context.WithCancelCause(t.Context())
		beat = started(silent, PolicyHold).heartbeat(cancel)
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Error("under hold no other attempt can begin: the handler may finish")
		}
		beat.Stop()
		cancel(nil)
	})
}

// A grant may come when another attempt can have the claim already. Then the function does not run,
// and the claim is given back.
func TestUnderTakeoverAGrantThatComesTooLateIsGivenBack(t *testing.T) {
	space := redistest.Shared(t)
	var slow atomic.Bool
	proxy := redistest.StartProxy(t, strings.TrimPrefix(space.URL, "redis://"), func(request []byte) (redistest.Fate, func()) {
		if slow.Load() && bytes.Contains(request, []byte("token:{")) {
			time.Sleep(2 * MinLease)
		}
		return redistest.Pass, nil
	})
	tokens := newTokens(t, open(t, redistest.Space{URL: proxy.URL(), Prefix: space.Prefix}))
	key, ran := Key{Scope: "late", ID: "k"}, 0
	work := func(context.Context, *Attempt) ([]byte, error) { ran++; return nil, nil }
	slow.Store(true)
	_, err := tokens.Do(t.Context(), key, ClaimOptions{Policy: PolicyTakeover, Lease: MinLease}, work)
	expect.Error(t, "Do whose grant comes after its lease", err, redisstore.ErrUnavailable)
	expect.Equal(t, "how often the function ran for that", ran, 0)
	slow.Store(false)
	result, err := tokens.Do(t.Context(), key, ClaimOptions{Policy: PolicyTakeover, Lease: time.Minute}, work)
	expect.Error(t, "the next Do, at once", err, nil)
	expect.Equal(t, "whether that is a replay", result.Replayed, false)
	expect.Equal(t, "how often the function ran for both", ran, 1)
}
