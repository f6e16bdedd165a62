package storetest

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Clients is [Each] on stores that share a client of the test's ([redisstore.New]). The client has
// go-redis's defaults, except for what New asks for and for dials, of which one that fails is not
// repeated.
func Clients(t *testing.T, test func(t *testing.T, store *redisstore.Store)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, Share(t, EmbeddedClient(t), "")) })
	t.Run("redis", func(t *testing.T) {
		space := redistest.Shared(t)
		test(t, Share(t, Client(t, space.URL), space.Prefix))
	})
	t.Run("cluster", func(t *testing.T) {
		space := redistest.SharedCluster(t)
		test(t, Share(t, ClusterClient(t, space.URL), space.Prefix))
	})
}

// Client returns a client of a server that [redisstore.New] takes, closed with the test.
func Client(t testing.TB, url string) *redis.Client {
	t.Helper()
	return closedWith(t, redis.NewClient(clientOptions(&redis.Options{Addr: strings.TrimPrefix(url, "redis://")})))
}

// EmbeddedClient is [Client] of an embedded store of its own.
func EmbeddedClient(t testing.TB) *redis.Client {
	t.Helper()
	own, err := embedded.Open(embedded.Config{})
	if err != nil {
		t.Fatalf("opening the embedded store: %v", err)
	}
	closedWith(t, own)
	return closedWith(t, redis.NewClient(clientOptions(&redis.Options{
		Addr:   "127.0.0.1:1", // never dialed
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return own.Dial(ctx) },
	})))
}

// ClusterClient is [Client] for the URL of a cluster.
func ClusterClient(t testing.TB, url string) *redis.ClusterClient {
	t.Helper()
	return closedWith(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 strings.Split(strings.TrimPrefix(url, "redis+cluster://"), ","),
		ContextTimeoutEnabled: true, ReadTimeout: patience, WriteTimeout: patience, DialerRetries: 1,
	}))
}

func clientOptions(o *redis.Options) *redis.Options {
	o.MaxRetries, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout = -1, true, patience, patience
	o.DialerRetries = 1
	return o
}

// closedWith closes a client or a store with the test, which fails if a client was closed before.
func closedWith[C io.Closer](t testing.TB, opened C) C {
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Errorf("closing a %T: %v", opened, err)
		}
	})
	return opened
}

// Share opens a store on a client, and closes it with the test.
func Share(t testing.TB, client redis.UniversalClient, prefix string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(client, redisstore.Config{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatalf("opening a store on a client: %v", err)
	}
	return closedWith(t, store)
}
