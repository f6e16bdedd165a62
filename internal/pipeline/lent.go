package pipeline

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// lent is a caller's client: it stays open when the store is closed, so the store itself refuses
// what comes later.
type lent struct {
	nodes

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
		s.lent.nodes = single{client}
		return
	}
	s.lent.nodes = &lentCluster{clusterClient: clusterClient{cluster, s.timeout}, check: check, faults: map[*redis.Client]error{}}
	s.listMembers()
}

// open is the error of a client whose store was closed. A store with a client of its own, which is
// nil here, has none.
func (l *lent) open() error {
	if l == nil {
		return nil
	}
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
	return l.nodes.of(ctx, key)
}

func (l *lent) at(ctx context.Context, addr string) (*redis.Client, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.nodes.at(ctx, addr)
}

func (l *lent) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if err := l.open(); err != nil {
		return err
	}
	return l.nodes.each(ctx, f)
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

// Close ends the store's part of the client: its subscriptions, and all calls that come later.
func (l *lent) Close() error {
	l.mu.Lock()
	heard := l.heard
	l.closed, l.heard = true, nil
	l.mu.Unlock()
	var faults []error
	for pubsub := range heard {
		if err := pubsub.Close(); !errors.Is(err, redis.ErrClosed) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// lentCluster is a cluster client whose nodes were made by go-redis.
type lentCluster struct {
	clusterClient

	check func(*redis.Options) error
	mu    sync.Mutex
	// by server: why it cannot be used, or nil; ClusterOptions.NewClient may change its options
	faults map[*redis.Client]error
}

// fault checks a server that is new. It forgets servers that have left the cluster.
func (c *lentCluster) fault(client *redis.Client) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, is := c.faults[client]
	if !is {
		maps.DeleteFunc(c.faults, func(known *redis.Client, _ error) bool { return isClosed(known) })
		found = c.check(client.Options())
		c.faults[client] = found
	}
	return found
}

func (c *lentCluster) of(ctx context.Context, key string) (*redis.Client, error) {
	client, err := c.clusterClient.of(ctx, key)
	if err != nil {
		return nil, err
	}
	return client, c.fault(client)
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
	return found, c.fault(found)
}
