// Package storetest runs a test on every kind of store: the embedded one, a redis-server and a
// cluster. The same test on all of them keeps the fake honest.
package storetest

import (
	"cmp"
	"strings"
	"testing"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded" // the URL embedded:
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// AllRights lets stores run as a user of Redis that may run every command. It is for packages whose
// tests run scripts of their own, and is set before the tests run.
var AllRights bool

// patience is how long a call may take on a machine that is busy with other tests.
const patience = time.Minute

// Each runs the test on the embedded store, on a redis-server and on a cluster of three masters.
// The servers are those of [redistest.Shared]: the store's prefix keeps the test's keys apart, and
// the test must leave the servers as they are. There the store runs as a user that has
// [redisprobe.Rights] and no more, and the test fails if the user is denied anything.
func Each(t *testing.T, test func(t *testing.T, store *redisstore.Store)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		test(t, Open(t, redisstore.Config{URL: "embedded:", Timeout: patience}))
	})
	t.Run("redis", func(t *testing.T) { test(t, Redis(t)) })
	t.Run("cluster", func(t *testing.T) { test(t, Cluster(t)) })
}

// Redis opens a store of its own prefix on the redis-server that all tests of the binary share.
func Redis(t testing.TB) *redisstore.Store {
	t.Helper()
	return inSpace(t, redistest.Shared(t), redisstore.ModeStandalone)
}

// Cluster opens a store of its own prefix on the cluster that all tests of the binary share.
func Cluster(t testing.TB) *redisstore.Store {
	t.Helper()
	return inSpace(t, redistest.SharedCluster(t), redisstore.ModeCluster)
}

func inSpace(t testing.TB, space redistest.Space, mode redisstore.Mode) *redisstore.Store {
	t.Helper()
	url := space.URL
	if !AllRights {
		url = space.User(t, redisprobe.Rights(mode, space.Prefix))
	}
	return Open(t, redisstore.Config{URL: url, Prefix: space.Prefix, Timeout: patience})
}

// Open opens a store that is closed with the test; without a URL it is the embedded one. On a
// server the calls of a store may take ten seconds unless config says otherwise, rather than one:
// what makes them slow is this machine.
func Open(t testing.TB, config redisstore.Config) *redisstore.Store {
	t.Helper()
	config.URL = cmp.Or(config.URL, "embedded:")
	if config.Timeout == 0 && strings.HasPrefix(config.URL, "redis") {
		config.Timeout = 10 * time.Second
	}
	store, err := redisstore.OpenConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return store
}
