package pipeline

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// nodes finds the server for a key. Implementations are safe for concurrent use.
type nodes interface {
	// of returns the client of the server that holds the key, as far as this process knows.
	of(ctx context.Context, key string) (*redis.Client, error)
	// at returns the client of the server at an address that Redis named.
	at(ctx context.Context, addr string) (*redis.Client, error)
	// suspect is called for an error: the topology may have changed.
	suspect(ctx context.Context, err error)
	// each calls f for every master.
	each(ctx context.Context, f func(context.Context, *redis.Client) error) error
	// Subscribe, without a channel, returns a subscription that has no connection yet.
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	PoolStats() *redis.PoolStats
	Close() error
}

// single is one server, or the master that Sentinel names; go-redis follows +switch-master by
// itself.
//
// The client is a named field. If it were embedded, the compiler would write one more method here
// for each of its 600, which takes seconds.
type single struct{ client *redis.Client }

func (s single) of(context.Context, string) (*redis.Client, error) { return s.client, nil }
func (s single) at(context.Context, string) (*redis.Client, error) { return s.client, nil }
func (s single) suspect(context.Context, error)                    {}
func (s single) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	return f(ctx, s.client)
}
func (s single) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.client.Subscribe(ctx, channels...)
}
func (s single) PoolStats() *redis.PoolStats { return s.client.PoolStats() }
func (s single) Close() error                { return s.client.Close() }

// failover is a client of the master that sentinels name. go-redis asks them in each dial, and a
// dial that ends after Close subscribes to one again, for good: so that one closes once more.
type failover struct {
	single
	closed atomic.Bool
}

func newFailover(options *redis.FailoverOptions) *failover {
	f := &failover{single: single{redis.NewFailoverClient(options)}}
	f.client.AddHook(f)
	return f
}

// Close ends the connections.
func (f *failover) Close() error {
	f.closed.Store(true)
	return f.client.Close()
}

// DialHook is part of [redis.Hook].
func (f *failover) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if f.closed.Load() {
			_ = f.client.Close() // it is closed; this is for what the dial has opened
		}
		return conn, err
	}
}

// ProcessHook is part of [redis.Hook].
func (f *failover) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook is part of [redis.Hook].
func (f *failover) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// cluster routes by itself instead of through ClusterClient.Process, which sends a command again
// after a lost connection.
type cluster struct {
	client  *redis.ClusterClient // not embedded, for the reason above
	timeout time.Duration        // for finding a node
	mu      sync.Mutex
	byAddr  map[string]*redis.Client
}

func newCluster(options *redis.ClusterOptions) *cluster {
	c := &cluster{timeout: options.DialTimeout, byAddr: map[string]*redis.Client{}}
	options.NewClient = func(node *redis.Options) *redis.Client {
		client := redis.NewClient(node)
		c.mu.Lock()
		defer c.mu.Unlock()
		maps.DeleteFunc(c.byAddr, func(_ string, known *redis.Client) bool { return isClosed(known) })
		c.byAddr[node.Addr] = client
		return client
	}
	c.client = redis.NewClusterClient(options)
	return c
}

func (c *cluster) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.client.Subscribe(ctx, channels...)
}
func (c *cluster) PoolStats() *redis.PoolStats { return c.client.PoolStats() }
func (c *cluster) Close() error                { return c.client.Close() }

func (c *cluster) of(ctx context.Context, key string) (*redis.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.client.MasterForKey(ctx, key)
}

// at returns the client of a node that is known by its address; for one that is new, it reads the
// topology again first.
func (c *cluster) at(ctx context.Context, addr string) (*redis.Client, error) {
	if client := c.known(addr); client != nil {
		return client, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.client.ForEachShard(ctx, func(context.Context, *redis.Client) error { return nil }); err != nil {
		return nil, err
	}
	if client := c.known(addr); client != nil {
		return client, nil
	}
	return nil, &net.AddrError{Err: "MOVED to a node that the cluster does not list", Addr: addr}
}

func (c *cluster) known(addr string) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.byAddr[addr]; client != nil && !isClosed(client) {
		return client
	}
	return nil
}

// suspect reads the topology again, in the background and at most five times a second. Without it
// the client of a dead master's slots stays without service until the next periodic read, about a
// minute.
func (c *cluster) suspect(ctx context.Context, _ error) { c.client.ReloadState(ctx) }

func (c *cluster) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	return c.client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := f(ctx, node); err != nil {
			return &NodeError{Addr: node.Options().Addr, Err: err}
		}
		return nil
	})
}

// NodeError is what went wrong at one server of a cluster.
type NodeError struct {
	Addr string
	Err  error
}

// Error names the server.
func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }

// Unwrap returns what went wrong.
func (e *NodeError) Unwrap() error { return e.Err }

// Owners asks a cluster which of its slots each master has, and returns the first one, by the
// master's address. It is empty where there is one master.
func (s *Engine) Owners(ctx context.Context) (map[string]int, error) {
	if s.facts.set != inCluster {
		return map[string]int{}, nil
	}
	var mu sync.Mutex
	var masters []*redis.Client
	if err := s.nodes.each(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, node)
		return nil
	}); err != nil {
		return nil, err
	}
	var faults []error
	for _, node := range masters {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		ranges, err := node.ClusterSlots(ctx).Result()
		cancel()
		if err == nil {
			return firstSlots(ranges), nil
		}
		faults = append(faults, &NodeError{Addr: node.Options().Addr, Err: err})
	}
	return nil, errors.Join(faults...)
}

func firstSlots(ranges []redis.ClusterSlot) map[string]int {
	owners := map[string]int{}
	for _, slots := range ranges {
		if len(slots.Nodes) == 0 {
			continue
		}
		owner := slots.Nodes[0].Addr
		if first, is := owners[owner]; !is || slots.Start < first {
			owners[owner] = slots.Start
		}
	}
	return owners
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// isClosed reports whether a client was closed: go-redis does that to a node that has left a
// cluster. An open client does nothing within a context that has ended.
func isClosed(node *redis.Client) bool { return errors.Is(node.Ping(over).Err(), redis.ErrClosed) }
