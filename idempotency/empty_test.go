package idempotency

import (
	"context"
	"errors"
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
	for _, key := range []OperationKey{ClientKey("p", "r", ""), {}} {
		_, err := tokens.Do(t.Context(), key, ClaimOptions{}, func(context.Context) ([]byte, error) { ran++; return nil, nil })
		expect.Error(t, "Do with an empty key", err, ErrKeyMissing)
		_, err = tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
		expect.Error(t, "Claim with an empty key", err, ErrKeyMissing)
	}
	expect.Equal(t, "runs", ran, 0)
}

func TestClaimWithoutAFingerprintIsRefused(t *testing.T) {
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
	_, err := tokens.Claim(t.Context(), ClientKey("p", "r", "k"), ClaimOptions{})
	if err == nil || !strings.Contains(err.Error(), "fingerprint") || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("Claim without a fingerprint: got %v, want an error about it", err)
	}
}

func TestNewWithoutAStoreSaysSo(t *testing.T) {
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "needs a store") {
			t.Errorf("New without a store: got the panic %q, want a sentence", said)
		}
	}()
	New(nil, Config{})
}
