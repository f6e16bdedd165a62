package onstore

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestKeyPutsOnlyTheNameInBraces(t *testing.T) {
	store := at(t, "redis://127.0.0.1")
	for want, got := range map[string]string{
		"app:token:{abc}":       Key(store, "token", "abc"),
		"app:worker:{a b:c}:x":  Key(store, "worker", "a b:c", "x"),
		"app:worker:{p}:x:y:z":  Key(store, "worker", "p", "x", "y", "z"),
		"app:counter:{}":        Key(store, "counter", ""),
		"app:counter:{k}:req:1": Key(store, "counter", "k", "req", "1"),
	} {
		expect.Equal(t, "a key", got, want)
	}
}

// at is a store that makes no call.
func at(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: url, Prefix: "app:"})
	expect.NoError(t, "OpenConfig", err)
	t.Cleanup(func() { expect.NoError(t, "Close", store.Close()) })
	return store
}
