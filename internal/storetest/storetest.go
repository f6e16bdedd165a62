// Package storetest runs a test on every kind of store: the embedded one, a private redis-server and a private cluster. The same test on all of them keeps
// the fake honest.
package storetest

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// patience is longer than a call takes on a machine that is busy with other tests.
const patience = 20 * time.Second

// Each runs the test on the embedded store, on a redis-server and on a cluster of three masters, each new and gone when the test ends.
func Each(t *testing.T, test func(t *testing.T, store *redisstore.Store)) {
	t.Helper()
	for _, kind := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"embedded", func(*testing.T) string { return "embedded:" }},
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }},
		{"cluster", func(t *testing.T) string { return redistest.StartCluster(t, 3, 0).URL() }},
	} {
		t.Run(kind.name, func(t *testing.T) { test(t, Open(t, redisstore.Config{URL: kind.url(t), Timeout: patience})) })
	}
}

// Open opens a store that is closed with the test.
func Open(t testing.TB, config redisstore.Config) *redisstore.Store {
	t.Helper()
	store, err := redisstore.OpenConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return store
}
