package redisstore

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestKeyPutsOnlyTheNameInBraces(t *testing.T) {
	store := &Store{prefix: "app:"}
	for want, got := range map[string]string{
		"app:token:{abc}":       store.Key("token", "abc"),
		"app:worker:{a b:c}:x":  store.Key("worker", "a b:c", "x"),
		"app:worker:{p}:x:y:z":  store.Key("worker", "p", "x", "y", "z"),
		"app:counter:{}":        store.Key("counter", ""),
		"app:counter:{k}:req:1": store.Key("counter", "k", "req", "1"),
	} {
		expect.Equal(t, "a key", got, want)
	}
}
