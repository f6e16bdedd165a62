package idempotency

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/recordtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// abandoned claims a client's key and falls silent at once.
func abandoned(t testing.TB, tokens *Tokens, key, route string) (operation string, grant Grant) {
	t.Helper()
	record := Key{Scope: route, ID: key}
	options := ClaimOptions{Fingerprint: "f", Policy: PolicyTakeover, Lease: time.Hour, Route: route, RequestID: "request-" + key}
	grant = claim(t, tokens, record, options)
	expect.Error(t, "Abandon "+key, tokens.Abandon(t.Context(), record, grant.LeaseToken), nil)
	return record.Operation(), grant
}

// undecided is an operation in doubt that was claimed with a resolver, on a route that may have
// another name than its scope.
func undecided(t testing.TB, tokens *Tokens, scope, route, key string, resolve Resolver) (operation string) {
	t.Helper()
	record := Key{Scope: scope, ID: key}
	grant := claim(t, tokens, record, ClaimOptions{Fingerprint: "f", Lease: time.Hour, Route: route, Resolve: resolve})
	expect.NoError(t, "Abandon "+key, tokens.Abandon(t.Context(), record, grant.LeaseToken))
	return record.Operation()
}

// listed reads all pages of the operations in doubt.
func listed(t testing.TB, tokens *Tokens, prefix string, size int) (names []string) {
	t.Helper()
	cursor := ""
	for {
		page, next, err := tokens.List(t.Context(), prefix, cursor, size)
		expect.Error(t, "List", err, nil)
		if len(page) > size {
			t.Fatalf("a page of %d operations, want %d at most", len(page), size)
		}
		for _, operation := range page {
			names = append(names, operation.Name)
		}
		if next == "" {
			return names
		}
		cursor = next
	}
}

func TestOperationsInDoubtAreListedOldestFirst(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		size := 2
		if store.Mode() == redisstore.ModeCluster {
			size = 10 // a page of a cluster asks every slot
		}
		var all, payments []string
		for i, route := range []string{"POST /payments", "POST /orders", "POST /payments", "POST /orders", "POST /payments"} {
			operation, _ := abandoned(t, tokens, string(rune('a'+i)), route)
			all = append(all, operation)
			if route == "POST /payments" {
				payments = append(payments, operation)
			}
			time.Sleep(2 * time.Millisecond) // the next is in doubt a millisecond later
		}
		claim(t, tokens, Key{Scope: "r", ID: "running"}, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
		expect.Equal(t, "operations in doubt", listed(t, tokens, "", size), all)
		expect.Equal(t, "operations of POST /payments in doubt", listed(t, tokens, "POST /pay", size), payments)
		expect.Equal(t, "the operation of that name", listed(t, tokens, all[3], size), all[3:4])

		forget(t, tokens, Key{Scope: "POST /payments", ID: "a"})
		expect.Equal(t, "operations in doubt after a record is gone", listed(t, tokens, "", size), all[1:])
		_, _, err := tokens.List(t.Context(), "", "nonsense", 1)
		expect.Error(t, "List with a cursor of no page", err, ErrCursor)
		problem, _ := Problem(err)
		expect.Equal(t, "the code of its problem", problem.Code, api.InvalidRequest)
		for _, size := range []int{0, -1, 1001} {
			if _, _, err := tokens.List(t.Context(), "", "", size); err == nil {
				t.Errorf("List of %d: no error, want one", size)
			}
		}
	})
}

func TestOperationInDoubtIsReportedWithItsNameAndTime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		guarded := tokens.Middleware(Route{Name: "pay"})(&handler{serve: func(_ http.ResponseWriter, r *http.Request) {
			attempt, _ := FromContext(r.Context())
			attempt.Abandon()
		}})
		post(guarded, "a", "Idempotency-Key: k", "X-Request-Id: r-7")
		refused := post(guarded, "a", "Idempotency-Key: k")
		expect.Equal(t, "status of a repeat", refused.Code, 409)
		name := Key{Scope: "pay", ID: "k"}.Operation()
		expect.Contains(t, "the problem of a repeat", refused.Body.String(), `"operation":"`+name+`"`, `"since":"`, "An operator can settle the operation")

		operation, err := tokens.Operation(t.Context(), name)
		expect.Error(t, "Operation", err, nil)
		expect.Equal(t, "route, request and attempts of the operation", []any{operation.State, operation.Route, operation.RequestID, operation.Attempts}, []any{StateInDoubt, "pay", "r-7", 1})

		expect.Error(t, "Settle as refused", tokens.Settle(t.Context(), name, Settlement{Decision: DecisionRefused}), nil)
		operation, err = tokens.Operation(t.Context(), name)
		expect.NoError(t, "Operation after it was closed", err)
		expect.Equal(t, "state after it was closed", operation.State, StateRefused)
		closed := post(guarded, "a", "Idempotency-Key: k")
		expect.Equal(t, "status of a repeat after it was closed", closed.Code, 409)
		expect.Contains(t, "the problem of a repeat after it was closed", closed.Body.String(), "An operator has looked at the operation and closed it")
	})
}

func TestSettledOperationIsAnsweredAsItWasDecided(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		answer := Answer{Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, "X-Other": {"1"}}, Body: []byte("paid")}
		name, _ := abandoned(t, tokens, "happened", "pay")
		for range 2 { // repeating it is harmless
			expect.Error(t, "Settle as completed", tokens.Settle(t.Context(), name, Settlement{Decision: DecisionHappened, Answer: answer}), nil)
		}
		outcome, err := tokens.Claim(t.Context(), Key{Scope: "pay", ID: "happened"}, ClaimOptions{Fingerprint: "f"})
		expect.Error(t, "Claim after it was settled as completed", err, nil)
		expect.Equal(t, "the answer that was settled", outcome, Outcome{Answer: answer})
		expect.Error(t, "Settle with another answer", tokens.Settle(t.Context(), name, Settlement{Decision: DecisionHappened, Answer: Answer{Status: 500}}), ErrNotInDoubt)

		name, old := abandoned(t, tokens, "not-begun", "pay")
		expect.Error(t, "Settle as not begun", tokens.Settle(t.Context(), name, Settlement{Decision: DecisionNotBegun}), nil)
		next := claim(t, tokens, Key{Scope: "pay", ID: "not-begun"}, ClaimOptions{Fingerprint: "another", Lease: time.Hour})
		if next.Fence <= old.Fence || next.Attempt != 2 {
			t.Errorf("the claim after fence %d: got %+v, want a larger fence and attempt 2", old.Fence, next)
		}
		err = tokens.Complete(t.Context(), Key{Scope: "pay", ID: "not-begun"}, old.LeaseToken, answer)
		expect.Error(t, "Complete by the attempt that was settled", err, ErrSuperseded)

		err = tokens.Settle(t.Context(), name, Settlement{Decision: DecisionNotBegun})
		if left := redisstore.RetryAfter(err); !errors.Is(err, ErrAttemptRunning) || left <= 0 || left > time.Hour {
			t.Errorf("Settle while an attempt runs: got %v, want ErrAttemptRunning with up to an hour left", err)
		}
		for _, unknown := range []string{"", "nonsense", name[:31] + "!", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			expect.Error(t, "Settle "+unknown, tokens.Settle(t.Context(), unknown, Settlement{Decision: DecisionRefused}), ErrUnknownOperation)
		}
		if err := tokens.Settle(t.Context(), name, Settlement{Decision: "maybe"}); err == nil {
			t.Error("Settle with the decision maybe: got no error, want one that lists the decisions")
		}
	})
}

func TestEncryptedAnswerOfASettlementCanBeRepeated(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	tokens := newTokensWith(t, store, Config{AnswerKeys: []Secret{{ID: "k", Value: make([]byte, 32)}}})
	name, _ := abandoned(t, tokens, "k", "pay")
	settlement := Settlement{Decision: DecisionHappened, Answer: Answer{Status: 201, Header: http.Header{}, Body: []byte("secret")}}
	for range 2 {
		expect.Error(t, "Settle", tokens.Settle(t.Context(), name, settlement), nil)
	}
	stored := recordtest.Words(record(t, tokens, tokens.keysOf(name)[0]))["answer"]
	expect.Equal(t, "the stored answer begins as encrypted ones do", stored[:2], "2 ")
	outcome, err := tokens.Claim(t.Context(), Key{Scope: "pay", ID: "k"}, ClaimOptions{Fingerprint: "f"})
	expect.Error(t, "Claim", err, nil)
	expect.Equal(t, "the answer", outcome.Answer.Body, []byte("secret"))
}

func TestLongAndStrangeNamesOfRoutesAndRequestsAreNotKept(t *testing.T) {
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{}))
	long := string(slices.Repeat([]byte("r"), 300))
	key := Key{Scope: "r", ID: "k"}
	claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Route: long, RequestID: "a b\n"})
	operation, err := tokens.Operation(t.Context(), key.Operation())
	expect.Error(t, "Operation", err, nil)
	expect.Equal(t, "route and request id", []string{operation.Route, operation.RequestID}, []string{long[:200], ""})
}

// The words of a claim stand in the record as they are: none may hold what ends a word.
func FuzzTermsOfAClaimAreEightWords(f *testing.F) {
	f.Add("print", "POST /pay", "req-1", "scope")
	f.Add("a\tb", "a\tb\nc", "\t", "\n")
	f.Fuzz(func(t *testing.T, fingerprint, route, request, scope string) {
		options := ClaimOptions{Fingerprint: fingerprint, Route: route, RequestID: request}.withDefaults()
		terms := options.terms(Key{Principal: "p", Scope: scope, ID: "k"})
		if strings.Count(terms, "\t") != 7 || strings.ContainsAny(terms, "\n") || len(terms) > 1200 {
			t.Errorf("terms of %q: got %q, want eight words with a tab between them", []string{fingerprint, route, request, scope}, terms)
		}
		if fields := strings.Split(terms, "\t"); strings.ContainsAny(fields[2], " ") || fields[2] == "" {
			t.Errorf("the word of the fingerprint %q: got %q", fingerprint, fields[2])
		}
	})
}

func TestScopeOfATokenHasNoControlCharacters(t *testing.T) {
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{}))
	if _, err := tokens.Issue(t.Context(), "", "a\tb", 0); err == nil || !strings.Contains(err.Error(), "control characters") {
		t.Errorf("Issue with a tab in its scope: got error %v, want one about control characters", err)
	}
}

// An operator frees a token when the time for its first claim is over. An attempt that never
// begins does not use it up.
func TestFreedTokenStaysAfterAnAttemptThatNeverBegan(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		token, err := tokens.Issue(t.Context(), "", "", time.Minute)
		expect.Error(t, "Issue", err, nil)
		key, options := IssuedToken("", token.Value), ClaimOptions{Fingerprint: "f", Lease: time.Hour}
		expect.Error(t, "Abandon", tokens.Abandon(t.Context(), key, claim(t, tokens, key, options).LeaseToken), nil)
		// its minute was over long ago
		setWord(t, tokens, tokens.keys(key)[0], "claimable", "1")
		expect.Error(t, "Settle as not begun", tokens.Settle(t.Context(), key.Operation(), Settlement{Decision: DecisionNotBegun}), nil)
		expect.Error(t, "Release", tokens.Release(t.Context(), key, claim(t, tokens, key, options).LeaseToken), nil)
		status, err := tokens.Status(t.Context(), key)
		expect.Error(t, "Status", err, nil)
		if left := time.Until(status.ExpiresAt); left < 20*time.Hour {
			t.Errorf("the token that was freed, and whose next attempt never began, stays for %v, want about a day", left)
		}
	})
}

// An answer that could not be replayed is not recorded: it would be 503 to each repeat.
func TestAnswerWithoutAStatusIsRefused(t *testing.T) {
	tokens := embeddedTokens(t)
	for _, status := range []int{0, 199, 600} {
		key := Key{Scope: "pay", ID: strconv.Itoa(status)}
		owner := claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour}).LeaseToken
		answer := Answer{Status: status, Body: []byte("paid")}
		if err := tokens.Complete(t.Context(), key, owner, answer); err == nil {
			t.Errorf("Complete with status %d: got no error, want one", status)
		}
		wantState(t, tokens, key, StateClaimed)
		expect.Error(t, "Abandon", tokens.Abandon(t.Context(), key, owner), nil)
		if err := tokens.Settle(t.Context(), key.Operation(), Settlement{Decision: DecisionHappened, Answer: answer}); err == nil {
			t.Errorf("Settle with status %d: got no error, want one", status)
		}
		wantState(t, tokens, key, StateInDoubt)
	}
}

// hook runs once when a call of one kind has ended.
type hook struct {
	op  string
	run func()
}

func (h *hook) CallEnded(_ context.Context, call observe.Call) {
	if run := h.run; run != nil && call.Op == h.op {
		h.run = nil
		run()
	}
}

// A listing finds that a record has expired, and its key is used again before the operation is off
// the list.
func TestOperationThatBeginsAgainDuringAListingStaysOnTheList(t *testing.T) {
	t.Parallel()
	meanwhile := &hook{op: scripts.OperationGet.Name}
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{Observers: []observe.Observer{{CallEnded: meanwhile.CallEnded}}}))
	operation, _ := abandoned(t, tokens, "a", "pay")
	forget(t, tokens, Key{Scope: "pay", ID: "a"})
	meanwhile.run = func() { abandoned(t, tokens, "a", "pay") }
	listed(t, tokens, "", 2)
	expect.Equal(t, "operations in doubt", listed(t, tokens, "", 2), []string{operation})
}

// To list is to look, also where the list has an operation whose record has expired.
func TestOperationsInDoubtAreListedWhileRedisTakesNoWrites(t *testing.T) {
	server, tokens := onRedis(t)
	unconfirmed := newTokens(t, tokens.store.WithAck(1))
	gone, _ := abandoned(t, tokens, "a", "pay")
	stays, _ := abandoned(t, tokens, "b", "pay")
	forget(t, tokens, Key{Scope: "pay", ID: "a"})
	expect.Error(t, "asking Redis to take no writes", server.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(), nil)
	expect.Equal(t, "operations in doubt while Redis takes no writes", listed(t, tokens, "", 2), []string{stays})
	expect.Error(t, "asking Redis to take writes", server.Client().ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(), nil)
	expect.Equal(t, "operations in doubt while no replica confirms", listed(t, unconfirmed, "", 2), []string{stays})
	expect.Equal(t, "whether the expired one was on the list", gone != stays, true)
}
