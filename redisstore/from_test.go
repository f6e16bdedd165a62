package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// from opens a store by From or FromFailover, and closes it with the test.
func from(t *testing.T, store *redisstore.Store, err error) *redisstore.Store {
	t.Helper()
	expect.Error(t, "opening a store", err, nil)
	t.Cleanup(func() { expect.Error(t, "Close", store.Close(), nil) })
	return store
}

// A client with the settings that go-redis gives it is enough, and may be closed before the store.
func TestStoreFromAClientHasItsServerAndConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "open sesame")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "open sesame", DB: 3, ClientName: "shop"})
	made, err := redisstore.From(client, redisstore.Config{Timeout: time.Minute})
	store := from(t, made, err)
	expect.Equal(t, "Address", store.Address(), "redis://"+server.Addr())
	mustBump(t, store, "x", 1)
	expect.Equal(t, "what the client reads", client.Get(t.Context(), onstore.Key(store, "test", "x")).Val(), "1")
	expect.Equal(t, "connections to the server of that name", strings.Count(client.ClientList(t.Context()).Val(), "name=shop"), 2)
	expect.Equal(t, "MaxRetries of the client afterwards", client.Options().MaxRetries, 3)
	expect.Error(t, "closing the client", client.Close(), nil)
	mustBump(t, store, "x", 2)
}

func TestStoreFromAClientSpeaksItsTLS(t *testing.T) {
	t.Parallel()
	_, address, cert := redistest.StartTLS(t)
	pem, err := os.ReadFile(cert)
	expect.Error(t, "reading the certificate", err, nil)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	client := redis.NewClient(&redis.Options{Addr: address, TLSConfig: &tls.Config{RootCAs: trusted}})
	defer client.Close()
	made, err := redisstore.From(client, redisstore.Config{Timeout: time.Minute})
	mustBump(t, from(t, made, err), "x", 1)
}

func TestStoreFromAClusterClient(t *testing.T) {
	t.Parallel()
	space := redistest.SharedCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:      strings.Split(strings.TrimPrefix(space.URL, "redis+cluster://"), ","),
		MaxRetries: 2, RouteRandomly: true,
		NewClient: func(o *redis.Options) *redis.Client { o.MaxRetries = 7; return redis.NewClient(o) },
	})
	defer client.Close()
	made, err := redisstore.From(client, redisstore.Config{Prefix: space.Prefix, Timeout: time.Minute})
	store := from(t, made, err)
	expect.Equal(t, "Mode", store.Mode(), redisstore.ModeCluster)
	mustBump(t, store, "x", 1)
	err = onstore.EachMaster(t.Context(), store, "test", func(_ context.Context, master *redis.Client) error {
		if o := master.Options(); o.MaxRetries != 0 || !o.ContextTimeoutEnabled {
			return fmt.Errorf("%s: MaxRetries %d, ContextTimeoutEnabled %v: want none and true", o.Addr, o.MaxRetries, o.ContextTimeoutEnabled)
		}
		return nil
	})
	expect.Error(t, "the settings of every node", err, nil)
}

// The replicas are those that the sentinels of the options list.
func TestStoreFromTheOptionsOfAFailoverClient(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	hosts, master, _ := strings.Cut(strings.TrimPrefix(set.URL(), "redis+sentinel://"), "/")
	options := &redis.FailoverOptions{MasterName: master, SentinelAddrs: strings.Split(hosts, ","), ReplicaOnly: true}
	made, err := redisstore.FromFailover(options, redisstore.Config{Timeout: time.Minute, AckTimeout: 30 * time.Second, Ack: redisstore.AckAll})
	store := from(t, made, err)
	expect.Equal(t, "Address", store.Address(), set.URL())
	mustBump(t, store, "x", 1)
	continuity, err := store.Continuity(t.Context())
	expect.Error(t, "Continuity", err, nil)
	expect.Equal(t, "replicas that confirm", continuity.Acks, 2)
	expect.Equal(t, "ReplicaOnly of the options afterwards", options.ReplicaOnly, true)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	old.Restart() // all that sentinels list have to confirm
	expect.Eventually(t, "a call succeeds after a failover", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
}

func TestClientThatNamesNoServersIsRefusedWithWhatToCall(t *testing.T) {
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	slots := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	for _, row := range []struct {
		name   string
		client redis.UniversalClient
		says   string
	}{
		{"a failover client", failover, "call redisstore.FromFailover with the redis.FailoverOptions that it was made with"},
		{"a failover cluster client", slots, "call redisstore.FromFailover with its redis.FailoverOptions"},
		{"a ring", ring, "give a *redis.Client or a *redis.ClusterClient"},
		{"a type of the caller's own", struct{ redis.UniversalClient }{failover}, "give a *redis.Client or a *redis.ClusterClient"},
		{"no client", nil, "redis client: it is nil; give a *redis.Client or a *redis.ClusterClient"},
		{"no client of a type", (*redis.ClusterClient)(nil), "redis client: it is nil; give a *redis.Client or a *redis.ClusterClient"},
	} {
		_, err := redisstore.From(row.client, redisstore.Config{})
		if said := fmt.Sprint(err); !strings.HasPrefix(said, "redis client: ") || !strings.HasSuffix(said, row.says) {
			t.Errorf("%s: got error %q, want one that ends in %q", row.name, said, row.says)
		}
	}
	for _, client := range []redis.UniversalClient{failover, slots, ring} {
		expect.Error(t, "closing a client", client.Close(), nil)
	}
}

func TestAllFaultsOfAConfigurationForAClientAreReportedTogether(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	_, one := redisstore.From(client, redisstore.Config{URL: "redis://h", MaxBytes: 1, Ack: -2, Timeout: time.Hour})
	_, other := redisstore.FromFailover(&redis.FailoverOptions{}, redisstore.Config{TLS: &tls.Config{}})
	_, none := redisstore.FromFailover(nil, redisstore.Config{})
	for said, names := range map[string][]string{
		fmt.Sprint(one):   {"URL: leave it empty", "MaxBytes", "ack -2", "timeout 1h"},
		fmt.Sprint(other): {"TLS: leave it empty", "redis.FailoverOptions.MasterName", "redis.FailoverOptions.SentinelAddrs"},
		fmt.Sprint(none):  {"redis.FailoverOptions are nil"},
	} {
		for _, name := range names {
			expect.Contains(t, "the error", said, name)
		}
	}
}

// Where a server hangs, a call ends with the store's timeout, whatever the client's are.
func TestCallOnAStoreFromAClientEndsWithTheStoresTimeout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -2, WriteTimeout: -2, DialTimeout: time.Hour})
	defer client.Close()
	made, err := redisstore.From(client, redisstore.Config{Timeout: brief})
	store := from(t, made, err)
	expect.Eventually(t, "a call succeeds", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	server.Pause()
	soon(t, func() {
		_, err := bumped(t.Context(), store, "x")
		expect.Error(t, "a call to a server that hangs", err, context.DeadlineExceeded)
	})
}

// The way to the server is the client's, such as a tunnel's.
func TestStoreFromAClientDialsAsItDoes(t *testing.T) {
	server, err := embedded.Open(embedded.Config{})
	expect.Error(t, "opening the embedded store", err, nil)
	defer server.Close()
	client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return server.Dial(ctx) }})
	defer client.Close()
	made, err := redisstore.From(client, redisstore.Config{Timeout: time.Minute})
	mustBump(t, from(t, made, err), "x", 1)
}
