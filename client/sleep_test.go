package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A machine sleeps before the answer to a claim comes. Its lease has run on meanwhile.
func TestSuspendBeforeTheAnswerToAClaim(t *testing.T) {
	asked := expect.Asleep(time.Now(), 20*time.Second)
	for lease, want := range map[time.Duration]error{10 * time.Second: ErrSuperseded, 30 * time.Second: nil} {
		granted := &run{trusted: asked, terms: ClaimOptions{Policy: PolicyTakeover, Lease: lease}}
		expect.Error(t, "why a function may not begin 20s into a lease of "+lease.String(), granted.tooLate(t.Context()), want)
	}
}

// A machine sleeps before the answer to a request for a lock comes. It is not known when the lease
// began, so it is counted anew.
func TestSuspendBeforeTheAnswerOfALock(t *testing.T) {
	const ttl = 30 * time.Second
	var asked []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		renewed := api.LockRenewed{Name: "n", TTLMs: ttl.Milliseconds(), ExpiresAt: api.At(time.Now())}
		expect.Error(t, "answering", json.NewEncoder(w).Encode(renewed), nil)
	}))
	defer service.Close()
	c, err := New(Config{URL: service.URL})
	expect.Error(t, "New", err, nil)
	lock, err := c.keepLock(t.Context(), lockGrant{"n", "token", 1, time.Now(), ttl}, expect.Asleep(time.Now(), ttl))
	if err != nil {
		t.Fatalf("a lock whose answer was %v old by the wall clock: %v", ttl, err)
	}
	expect.Error(t, "Release", lock.Release(t.Context()), nil)
	expect.Equal(t, "requests", asked, []string{http.MethodPut, http.MethodDelete})
}
