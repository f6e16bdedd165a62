package doubt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/doubt"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// fallSilent begins n operations of a route whose attempts end without an answer.
func fallSilent(t *testing.T, tokens *idempotency.Tokens, route string, n int) {
	t.Helper()
	for i := range n {
		key := idempotency.Key{Principal: "p", Scope: route, ID: fmt.Sprint(i)}
		_, err := tokens.Claim(t.Context(), key, idempotency.ClaimOptions{Fingerprint: "f", Route: route, Lease: idempotency.MinLease})
		expect.Error(t, "Claim", err, nil)
	}
}

// now waits until so many are in doubt.
func now(t *testing.T, w *doubt.Watch, operations int) (f doubt.Figures) {
	t.Helper()
	expect.Eventually(t, fmt.Sprint(operations, " operations are in doubt"), func() bool {
		w.Forget()
		var known bool
		f, known = w.Now()
		return known && f.Operations == operations
	})
	return f
}

// A client that names a thousand scopes gets no series for any of them.
func TestFiguresAreByRoutesOfThisProcessAndTwoWords(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := idempotency.New(store, idempotency.Config{})
		w := doubt.New(store, tokens, func() []string { return []string{"POST /payments", "POST /orders"} })
		f := now(t, w, 0)
		expect.Equal(t, "since", f.Since, time.Time{})

		fallSilent(t, tokens, "POST /payments", 3)
		fallSilent(t, tokens, "a client's", 2)
		before := time.Now().Add(-time.Hour)
		f = now(t, w, 5)
		if f.Since.Before(before) || f.Since != f.Scopes["POST /payments"].Since {
			t.Errorf("since: got %v, want the end of the oldest lease, of POST /payments: %v", f.Since, f.Scopes["POST /payments"].Since)
		}
		got := map[string]int{}
		for name, scope := range f.Scopes {
			got[name] = scope.Operations
		}
		expect.Equal(t, "by scope", got, map[string]int{"POST /payments": 3, "POST /orders": 0, doubt.Other: 2, doubt.Unread: 0})
	})
}

// What is not read one by one is counted, by Redis, in one step for each list.
func TestOperationsBeyondTheOldestAreCountedAndNotRead(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	tokens := idempotency.New(store, idempotency.Config{})
	w := doubt.New(store, tokens, func() []string { return []string{"POST /payments"} })
	fallSilent(t, tokens, "POST /payments", 300)
	f := now(t, w, 300)
	expect.Equal(t, "by scope", []int{f.Scopes["POST /payments"].Operations, f.Scopes[doubt.Unread].Operations}, []int{256, 44})
}

// However many ask, Redis is asked once in a while.
func TestFiguresAreRememberedForAMoment(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	tokens := idempotency.New(store, idempotency.Config{})
	w := doubt.New(store, tokens, func() []string { return nil })
	first, known := w.Now()
	expect.Equal(t, "known", known, true)
	expect.Error(t, "closing the store", store.Close(), nil)
	again, known := w.Now()
	expect.Equal(t, "known without asking the store", known, true)
	expect.Equal(t, "the same figures", again.Scopes, first.Scopes)
	w.Forget()
	again, known = w.Now()
	expect.Equal(t, "known while the store is away", known, true)
	expect.Equal(t, "the last figures", again.Scopes, first.Scopes)
}
