package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// All messages without an id would be one operation: the second would get the answer of the first,
// and be lost.
func TestEmptyKeyIsNoOperation(t *testing.T) {
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
	ran := 0
	for _, key := range []Key{{Principal: "p", Scope: "r"}, {}} {
		_, err := tokens.Do(t.Context(), key, ClaimOptions{}, func(context.Context, *Attempt) ([]byte, error) { ran++; return nil, nil })
		expect.Error(t, "Do with an empty key", err, ErrKeyMissing)
		_, err = tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
		expect.Error(t, "Claim with an empty key", err, ErrKeyMissing)
	}
	expect.Equal(t, "runs", ran, 0)
}

func TestClaimWithoutAFingerprintIsRefused(t *testing.T) {
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
	_, err := tokens.Claim(t.Context(), Key{Principal: "p", Scope: "r", ID: "k"}, ClaimOptions{})
	if err == nil || !strings.Contains(err.Error(), "fingerprint") || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("Claim without a fingerprint: got %v, want an error about it", err)
	}
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	for what, row := range map[string]struct {
		store  *redisstore.Store
		config Config
		says   string
	}{
		"no store":                        {nil, Config{}, "needs a store"},
		"a base that is no URI reference": {store, Config{ProblemBase: "http://[::1"}, "no URI reference"},
		"a short token key":               {store, Config{TokenKeys: []Secret{{ID: "k", Value: []byte("short")}}}, "token keys"},
		"an answer key without id":        {store, Config{AnswerKeys: []Secret{{ID: "", Value: make([]byte, 32)}}}, "id"},
	} {
		expect.Contains(t, "panic of New with "+what, saidBy(func() { New(row.store, row.config) }), row.says)
	}
}

// An application without the service's pages says where its own are.
func TestTypeOfAProblemBeginsWithTheBase(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	for base, want := range map[string]string{
		"":                               "/problems/idempotency-key-missing",
		"https://shop.example/problems/": "https://shop.example/problems/idempotency-key-missing",
	} {
		tokens := New(store, Config{ProblemBase: base})
		answer := post(tokens.Middleware(Route{Name: "r"})(http.NotFoundHandler()), "pay")
		var problem struct {
			Type string `json:"type"`
		}
		expect.Error(t, "reading the problem", json.Unmarshal(answer.Body.Bytes(), &problem), nil)
		expect.Equal(t, "type", problem.Type, want)
		expect.Error(t, "Close", tokens.Close(t.Context()), nil)
	}
}
