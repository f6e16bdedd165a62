package pipeline

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// servers are the servers of a caller's client.
type servers interface {
	nodes
	// all are the generations of all servers that were used.
	all() []*generations
}

// lent is a caller's client: it stays open when the store is closed, so the store itself refuses
// what comes later.
type lent struct {
	servers

	mu     sync.Mutex
	closed bool
	heard  map[*redis.PubSub]struct{} // subscriptions that are open
}

// Lend gives the engine a client of the caller's: of one server or of the master that Sentinel
// names, or else of a cluster, of which it uses no node that check finds a fault in.
func (s *Engine) Lend(client *redis.Client, cluster *redis.ClusterClient, check func(*redis.Options) error) {
	s.lent = &lent{heard: map[*redis.PubSub]struct{}{}}
	s.nodes = s.lent
	if client != nil {
		s.lent.servers = lentSingle{single{client, &generations{observers: s.observers, inBand: true}}}
		return
	}
	s.lent.servers = &lentCluster{clusterClient: clusterClient{cluster, s.timeout}, observers: s.observers, check: check, known: map[*redis.Client]*lentNode{}}
}

func (l *lent) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return redis.ErrClosed
	}
	return nil
}

func (l *lent) of(ctx context.Context, key string) (*redis.Client, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.servers.of(ctx, key)
}

func (l *lent) at(ctx context.Context, addr string) (*redis.Client, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.servers.at(ctx, addr)
}

func (l *lent) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if err := l.open(); err != nil {
		return err
	}
	return l.servers.each(ctx, f)
}

// hold keeps a subscription in mind, to end it with the store. On a store that is closed it ends at
// once. A store with a client of its own, which is nil here, needs neither.
func (l *lent) hold(pubsub *redis.PubSub) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.Join(redis.ErrClosed, pubsub.Close())
	}
	l.heard[pubsub] = struct{}{}
	return nil
}

// drop forgets a subscription that has ended.
func (l *lent) drop(pubsub *redis.PubSub) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.heard, pubsub)
}

// Close ends the store's part of the client: its subscriptions, and all generations, so that no
// increment goes out any more.
func (l *lent) Close() error {
	l.mu.Lock()
	heard := l.heard
	l.closed, l.heard = true, nil
	l.mu.Unlock()
	for _, generations := range l.all() {
		generations.end()
	}
	var faults []error
	for pubsub := range heard {
		if err := pubsub.Close(); !errors.Is(err, redis.ErrClosed) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// lentSingle is a client of one server, or of the master that Sentinel names.
type lentSingle struct{ single }

func (s lentSingle) all() []*generations { return []*generations{s.generations} }

// lentCluster is a cluster client whose nodes were made by go-redis.
type lentCluster struct {
	clusterClient

	observers observers
	check     func(*redis.Options) error
	mu        sync.Mutex
	known     map[*redis.Client]*lentNode
}

// lentNode is a server of a cluster.
type lentNode struct {
	generations *generations
	fault       error // why it cannot be used: ClusterOptions.NewClient may change a node's options
}

// node returns the state of a server, and checks a new one. It forgets servers that have left the
// cluster.
func (c *lentCluster) node(client *redis.Client) *lentNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.known[client]; found != nil {
		return found
	}
	maps.DeleteFunc(c.known, func(known *redis.Client, _ *lentNode) bool { return isClosed(known) })
	found := &lentNode{&generations{observers: c.observers, inBand: true}, c.check(client.Options())}
	c.known[client] = found
	return found
}

func (c *lentCluster) of(ctx context.Context, key string) (*redis.Client, error) {
	client, err := c.clusterClient.of(ctx, key)
	if err != nil {
		return nil, err
	}
	return client, c.node(client).fault
}

// at finds a node by its address, after it has read the topology again if need be.
func (c *lentCluster) at(ctx context.Context, addr string) (*redis.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var mu sync.Mutex
	var found *redis.Client
	err := c.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if node.Options().Addr == addr {
			found = node
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, &net.AddrError{Err: "MOVED to a node that the cluster does not list", Addr: addr}
	}
	return found, c.node(found).fault
}

func (c *lentCluster) generation(node *redis.Client) *generations { return c.node(node).generations }

func (c *lentCluster) all() (all []*generations) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, node := range c.known {
		all = append(all, node.generations)
	}
	return all
}
