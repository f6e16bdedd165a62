// Package coatchecktest helps to test a program that uses coatcheck: a store in memory for each
// test, whose Redis can be taken away, and virtual time.
//
// All of it works inside a bubble of testing/synctest, where leases, retention and heartbeats pass
// hours in an instant; docs/testing.md has examples. A store outside of a bubble goes by the
// machine's clock.
package coatchecktest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
)

// timeout of calls: only a busy machine takes long, and to give up would fail the test for it.
const timeout = 30 * time.Second

// Store returns a store on a Redis of its own in memory, closed with the test.
func Store(t testing.TB) *redisstore.Store { return Start(t).Store() }

// Pass lets time pass in a bubble of testing/synctest, and returns when all that was due is done
// and every other goroutine of the bubble waits. It panics outside of one.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Present lets time pass until the year 2026, in a bubble of testing/synctest. A bubble begins in
// the year 2000, before the epoch of Snowflake ids: a test of ids calls it first of all.
func Present() { time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))) }

// Redis is one in memory that a test can take away from its store. Several goroutines may use it.
type Redis struct {
	store *redisstore.Store
	own   *embedded.Store

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]struct{}
}

// Start returns a Redis that ends with the test. It fails the test if there can be none.
func Start(t testing.TB) *Redis {
	t.Helper()
	own, err := embedded.Open(embedded.Config{})
	if err != nil {
		t.Fatalf("coatchecktest: %v", err)
	}
	r := &Redis{own: own, open: map[net.Conn]struct{}{}}
	// the address is never dialed, and is no name that would be looked up
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: r.dial})
	r.store, err = redisstore.From(client, redisstore.Config{Timeout: timeout})
	if err := errors.Join(err, client.Close()); err != nil {
		t.Fatalf("coatchecktest: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.store.Close(), own.Close()); err != nil {
			t.Errorf("coatchecktest: closing the store: %v", err)
		}
	})
	return r
}

// Store is the store on this Redis.
func (r *Redis) Store() *redisstore.Store { return r.store }

// Cut takes the Redis away: connections break, and new ones are refused until Mend. What it holds
// stays. So a lease ends: nothing renews it, its holder is told within its TTL, and after the TTL
// another may have it. A call whose answer is on its way fails with an unknown outcome.
func (r *Redis) Cut() {
	r.mu.Lock()
	open := r.open
	r.cut, r.open = true, map[net.Conn]struct{}{}
	r.mu.Unlock()
	for conn := range open {
		_ = conn.Close() // the client's error is what the test is about
	}
}

// Mend lets connections be made again.
func (r *Redis) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}

func (r *Redis) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	conn, err := r.own.Dial(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return nil, errors.Join(&net.OpError{Op: "dial", Net: network, Err: errors.New("coatchecktest: the Redis was cut off")}, conn.Close())
	}
	r.open[conn] = struct{}{}
	return &counted{conn, r}, nil
}

// counted is a connection that its Redis forgets when it is closed.
type counted struct {
	net.Conn

	redis *Redis
}

// Close closes the connection.
func (c *counted) Close() error {
	c.redis.mu.Lock()
	delete(c.redis.open, c.Conn)
	c.redis.mu.Unlock()
	return c.Conn.Close()
}
