package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// sound has the options that a store needs, and go-redis's defaults otherwise.
func sound(change func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
	change(options)
	return redis.NewClient(options)
}

func soundCluster(change func(*redis.ClusterOptions)) *redis.ClusterClient {
	options := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true}
	change(options)
	return redis.NewClusterClient(options)
}

type clientCase struct {
	name   string
	client redis.UniversalClient
	says   string // how the error ends, "" = it is taken
}

func takenClients() []clientCase {
	return []clientCase{
		{"a client with what a store needs", sound(func(*redis.Options) {}), ""},
		{"timeouts off", sound(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 }), ""},
		{"the store's timeout", sound(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Second, time.Second }), ""},
		{"a failover client", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, MaxRetries: -1, ContextTimeoutEnabled: true}), ""},
		{"a cluster client", soundCluster(func(*redis.ClusterOptions) {}), ""},
		{"a cluster client, retries off", soundCluster(func(o *redis.ClusterOptions) { o.MaxRetries = -1 }), ""},
	}
}

func refusedClients() []clientCase {
	return []clientCase{
		{"retries by default", sound(func(o *redis.Options) { o.MaxRetries = 0 }),
			"redis client: it sends a command up to 3 times again when the reply is lost, so that an increment is done more than once; set redis.Options.MaxRetries to -1, or call redisstore.From in place of New"},
		{"retries of a failover client", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true}),
			"set redis.FailoverOptions.MaxRetries to -1, or call redisstore.FromFailover with them"},
		{"contexts without effect", sound(func(o *redis.Options) { o.ContextTimeoutEnabled = false }),
			"redis client: a call does not end with its context; set redis.Options.ContextTimeoutEnabled to true, or call redisstore.From in place of New"},
		{"a short read timeout", sound(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = 400*time.Millisecond, time.Second }),
			"set redis.Options.ReadTimeout to 1s or more, or redisstore.Config.Timeout to 400ms or less, or call redisstore.From in place of New"},
		{"a short write timeout", sound(func(o *redis.Options) { o.WriteTimeout = 400 * time.Millisecond }),
			"set redis.Options.WriteTimeout to 1s or more, or redisstore.Config.Timeout to 400ms or less, or call redisstore.From in place of New"},
		{"reads without a deadline", sound(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -2, time.Minute }), "set redis.Options.ReadTimeout to -1, or call redisstore.From in place of New"},
		{"a cache", sound(func(o *redis.Options) { o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{} }),
			"redis client: it answers reads from a cache; leave redis.Options.ClientSideCacheConfig and redis.Options.ClientSideCache nil, or call redisstore.From in place of New"},
		{"retries of a cluster's nodes", soundCluster(func(o *redis.ClusterOptions) { o.MaxRetries = 2 }), "set redis.ClusterOptions.MaxRetries to -1, or call redisstore.From in place of New"},
		{"contexts without effect in a cluster", soundCluster(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = false }), "set redis.ClusterOptions.ContextTimeoutEnabled to true, or call redisstore.From in place of New"},
		{"reads from replicas", soundCluster(func(o *redis.ClusterOptions) { o.ReadOnly = true }), "set redis.ClusterOptions.ReadOnly to false, or call redisstore.From in place of New"},
		{"reads from the nearest", soundCluster(func(o *redis.ClusterOptions) { o.RouteByLatency = true }), "set redis.ClusterOptions.RouteByLatency to false, or call redisstore.From in place of New"},
		{"reads from any", soundCluster(func(o *redis.ClusterOptions) { o.RouteRandomly = true }), "set redis.ClusterOptions.RouteRandomly to false, or call redisstore.From in place of New"},
		{"a failover cluster client", redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true}),
			"and for a Sentinel set call redisstore.FromFailover with its redis.FailoverOptions"},
		{"a ring", redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}), "give a *redis.Client or a *redis.ClusterClient"},
		{"a type of the caller's own", struct{ redis.UniversalClient }{sound(func(*redis.Options) {})}, "give a *redis.Client or a *redis.ClusterClient"},
		{"no client", nil, "redis client: it is nil; give a *redis.Client or a *redis.ClusterClient"},
		{"no client of a type", (*redis.Client)(nil), "redis client: it is nil; give a *redis.Client or a *redis.ClusterClient"},
		{"no cluster client", (*redis.ClusterClient)(nil), "redis client: it is nil; give a *redis.Client or a *redis.ClusterClient"},
	}
}

func TestClientIsTakenOrRefusedWithWhatMendsIt(t *testing.T) {
	for _, row := range append(takenClients(), refusedClients()...) {
		t.Run(row.name, func(t *testing.T) {
			if !strings.HasPrefix(row.name, "no ") {
				defer row.client.Close()
			}
			store, err := redisstore.New(row.client, redisstore.Config{})
			if row.says == "" {
				expect.Error(t, "New", err, nil)
				expect.Error(t, "Close", store.Close(), nil)
				return
			}
			if said := fmt.Sprint(err); !strings.HasPrefix(said, "redis client: ") || !strings.HasSuffix(said, row.says) || strings.Contains(said, "\n") {
				t.Errorf("got error %q, want one line of a client that ends in %q", fmt.Sprint(err), row.says)
			}
		})
	}
}

func TestAllFaultsOfAClientAreReportedTogether(t *testing.T) {
	client := redis.NewClient(&redis.Options{ReadTimeout: time.Millisecond})
	defer client.Close()
	_, err := redisstore.New(client, redisstore.Config{URL: "redis://h", MaxKeys: 1, MaxBytes: 1, Ack: -2})
	for _, says := range []string{"URL: leave it empty", "MaxKeys", "MaxBytes", "ack -2", "Options.MaxRetries", "Options.ContextTimeoutEnabled", "Options.ReadTimeout", "Options.WriteTimeout"} {
		if !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("got error %v, want one that says %q", err, says)
		}
	}
}

// Those who gave the client go on with it.
func TestClosedStoreLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, own *redisstore.Store) {
		var client redis.UniversalClient
		switch own.Mode() {
		case redisstore.Cluster:
			client = storetest.ClusterClient(t, own.Address())
		case redisstore.Standalone:
			client = storetest.Client(t, own.Address())
		default:
			client = storetest.EmbeddedClient(t)
		}
		prefix, _, _ := strings.Cut(own.Key("test", "x"), "test:")
		first, second := storetest.Share(t, client, prefix), storetest.Share(t, client, prefix)
		inbox, err := pipeline.Of(first).Subscribe(t.Context(), first.Key("test", "channel"))
		expect.Error(t, "Subscribe", err, nil)
		at := find(t, first, "x")
		expect.Error(t, "Close", first.Close(), nil)

		_, _, err = inbox.Next(t.Context())
		expect.Error(t, "Next after the store was closed", err, redisstore.ErrClosed)
		_, err = bumped(t.Context(), first, "x")
		refused(t, err, redisstore.ErrClosed)
		_, err = pipeline.Of(first).Subscribe(t.Context(), "x")
		refused(t, err, redisstore.ErrClosed)
		refused(t, first.Ping(t.Context()), redisstore.ErrClosed)
		_, err = incrBy(t, first, "x", 1, at)
		refused(t, err, redisstore.ErrClosed)
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the client after the store was closed: %v", err)
		}
		mustBump(t, second, "x", 1)
		err = second.EachMaster(t.Context(), "test", func(ctx context.Context, master *redis.Client) error { return master.Ping(ctx).Err() })
		expect.Error(t, "EachMaster of another store of the client", err, nil)
	})
}

// An increment that another incarnation has done is given to no caller, though the store did not
// see the connection being made.
func TestIncrementOnACallersClientKnowsItsIncarnation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Share(t, storetest.Client(t, server.URL()), "")
	at := find(t, store, "k")
	mustIncr(t, store, "k", 7, at, 7)
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	expect.Eventually(t, "a call succeeds", func() bool { _, err := number(t.Context(), store, peek, "k"); return err == nil })
	mustIncr(t, store, "k", 1, at, 8) // another connection is no other incarnation
	server.RestartEmpty()
	nextIncarnation(t, store, at)
	mustIncr(t, store, "again", 1, find(t, store, "again"), 1)
}

// A server that hangs, or a dial that does, holds a call up no longer than the store's timeout,
// although the client waits for ever.
func TestCallOnACallersClientEndsWithTheStoresTimeout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Config{Timeout: brief})
	expect.Error(t, "New", err, nil)
	defer store.Close()
	expect.Eventually(t, "a call succeeds", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	server.Pause()
	soon(t, func() {
		_, err := bumped(t.Context(), store, "x")
		expect.Error(t, "a call to a server that hangs", err, context.DeadlineExceeded)
		_, err = pipeline.Of(store).Subscribe(t.Context(), "x")
		refused(t, err)
	})

	dials := make(chan struct{})
	stuck := redis.NewClient(&redis.Options{
		MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Hour, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { <-dials; return nil, net.ErrClosed },
	})
	defer stuck.Close()
	defer close(dials)
	waits, err := redisstore.New(stuck, redisstore.Config{Timeout: brief})
	expect.Error(t, "New", err, nil)
	defer waits.Close()
	soon(t, func() { _, err := bumped(t.Context(), waits, "x"); refused(t, err) })
}

// ClusterOptions.NewClient can change what New has looked at.
func TestClusterNodeWithRetriesIsRefused(t *testing.T) {
	t.Parallel()
	space := redistest.SharedCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(strings.TrimPrefix(space.URL, "redis+cluster://"), ","), ContextTimeoutEnabled: true, ReadTimeout: -1,
		NewClient: func(o *redis.Options) *redis.Client { o.MaxRetries = 3; return redis.NewClient(o) },
	})
	defer client.Close()
	_, err := bumped(t.Context(), storetest.Share(t, client, space.Prefix), "x")
	refused(t, err)
	expect.Contains(t, "what the call says", fmt.Sprint(err), "set redis.Options.MaxRetries to -1")
}
