package idempotency

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// oneCommand is how a command begins on the wire: a list of strings, each after its length.
var oneCommand = regexp.MustCompile(`(?:^|\r\n)\*\d+\r\n\$`)

// TestRoundTripsOfEachRequest counts the commands that reach Redis, on the wire. One request at a
// time has nothing to share a round trip with, so that each command is one: two for a request whose
// handler runs or that repeats a large answer, one for any other that needs the store, none for one
// that does not.
func TestRoundTripsOfEachRequest(t *testing.T) {
	space := redistest.Shared(t)
	var commands atomic.Int64 // counted before they are passed on, so when their answers arrive
	meter := redistest.StartProxy(t, strings.TrimPrefix(space.URL, "redis://"), func(request []byte) (redistest.Fate, func()) {
		commands.Add(int64(len(oneCommand.FindAll(request, -1))))
		return redistest.Pass, nil
	})
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: meter.URL(), Prefix: space.Prefix, Timeout: time.Minute}))
	route := Route{Name: "pay", Lease: time.Hour} // no heartbeat falls into the test
	guarded := tokens.Middleware(route)(&handler{})
	held := make(chan struct{})
	begun := make(chan struct{})
	large := tokens.Middleware(route)(&handler{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }})
	slow := tokens.Middleware(route)(&handler{serve: func(http.ResponseWriter, *http.Request) { close(begun); <-held }})
	optional := tokens.Middleware(Route{Name: "pay", Optional: true})(&handler{})

	// Redis learns the scripts, and the connection is made.
	post(guarded, "a", "Idempotency-Key: warm")
	doubt := claim(t, tokens, Key{Scope: "pay", ID: "doubtful"}, ClaimOptions{Fingerprint: "any", Lease: time.Hour})
	lapsed := lapse(t, tokens, tokens.keys(Key{Scope: "pay", ID: "doubtful"})[0])
	if lapsed != "any" || doubt.Attempt != 1 {
		t.Fatalf("the claim in doubt: got %+v of fingerprint %q, want attempt 1 of %q", doubt, lapsed, "any")
	}
	token, unused := issuedToken(t, tokens), issuedToken(t, tokens)

	var running sync.WaitGroup
	post(large, "a", "Idempotency-Key: large")
	post(large, "a", "Idempotency-Key: large")
	running.Go(func() { post(slow, "a", "Idempotency-Key: busy") })
	<-begun
	for _, row := range []struct {
		name    string
		status  int
		trips   int64
		request func() int
	}{
		{"first", 201, 2, func() int { return post(guarded, "a", "Idempotency-Key: k").Code }},
		{"replay", 201, 1, func() int { return post(guarded, "a", "Idempotency-Key: k").Code }},
		{"replay of a large answer", 200, 2, func() int { return post(large, "a", "Idempotency-Key: large").Code }},
		{"other payload", 422, 1, func() int { return post(guarded, "b", "Idempotency-Key: k").Code }},
		{"first of a token", 201, 2, func() int { return post(guarded, "a", "Idempotency-Token: "+token).Code }},
		{"replay of a token", 201, 1, func() int { return post(guarded, "a", "Idempotency-Token: "+token).Code }},
		{"unknown token", 410, 1, func() int { return post(guarded, "a", "Idempotency-Token: made-up").Code }},
		{"in progress", 409, 1, func() int { return post(guarded, "a", "Idempotency-Key: busy").Code }},
		{"in doubt", 409, 1, func() int { return doubtful(t, tokens, lapsed) }},
		{"without a header", 400, 0, func() int { return post(guarded, "a").Code }},
		{"malformed", 400, 0, func() int { return post(guarded, "a", `Idempotency-Key: "open`).Code }},
		{"passed unguarded", 201, 0, func() int { return post(optional, "a").Code }},
		{"Do, first", 201, 2, func() int { return do(t, tokens, unused) }},
		{"Do, replay", 201, 1, func() int { return do(t, tokens, unused) }},
	} {
		before := commands.Load()
		status := row.request()
		if trips := commands.Load() - before; trips != row.trips || status != row.status {
			t.Errorf("%s: %d round trips and status %d, want %d and %d", row.name, trips, status, row.trips, row.status)
		}
	}
	close(held)
	running.Wait()
}

func issuedToken(t *testing.T, tokens *Tokens) string {
	t.Helper()
	token, err := tokens.Issue(t.Context(), "", "", 0)
	expect.NoError(t, "issuing a token", err)
	return token.Value
}

// doubtful asks for the operation that is in doubt, and returns 409 if that is the answer.
func doubtful(t *testing.T, tokens *Tokens, fingerprint string) int {
	t.Helper()
	_, err := tokens.Claim(t.Context(), Key{Scope: "pay", ID: "doubtful"}, ClaimOptions{Fingerprint: fingerprint})
	if expect.Error(t, "Claim of the operation in doubt", err, ErrInDoubt); err == nil {
		return 0
	}
	return http.StatusConflict
}

// do runs a job under a token, and returns 201 if it has its result.
func do(t *testing.T, tokens *Tokens, token string) int {
	t.Helper()
	result, err := tokens.Do(t.Context(), IssuedToken("", token), ClaimOptions{Lease: time.Hour}, func(context.Context, *Attempt) ([]byte, error) { return []byte("done"), nil })
	if err != nil || string(result.Value) != "done" {
		t.Errorf("Do: got %+v and error %v, want %q", result, err, "done")
		return 0
	}
	return http.StatusCreated
}
