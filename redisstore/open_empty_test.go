package redisstore_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A variable that is not set would open an empty store in memory.
func TestOpenWithoutAURLIsAnError(t *testing.T) {
	store, err := redisstore.Open(t.Context(), "")
	if store != nil || err == nil {
		t.Fatalf("Open with an empty URL: got %v, %v, want an error", store, err)
	}
	expect.Contains(t, "the error of an empty URL", err.Error(), "redis://", "embedded:")
}
