package scripts_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// stores are the Redises that the tests take turns on, as many of each kind as there are tests at
// once. They end with the run of the package: a redis-server for each test would cost more than
// most tests do.
var stores = pool{idle: map[string][]*redis.Client{}}

type pool struct {
	run lasting

	mu   sync.Mutex
	idle map[string][]*redis.Client
}

// take returns a client of a store that no other test has until this one ends. The store is empty;
// it may know scripts from before.
func (p *pool) take(t testing.TB, kind string) *redis.Client {
	t.Helper()
	client := p.pop(kind)
	if client == nil {
		client = p.start(t, kind)
	} else if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatalf("emptying a store that another test has used: %v", err)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle[kind] = append(p.idle[kind], client)
	})
	return client
}

func (p *pool) pop(kind string) *redis.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle[kind]
	if len(idle) == 0 {
		return nil
	}
	p.idle[kind] = idle[:len(idle)-1]
	return idle[len(idle)-1]
}

func (p *pool) start(t testing.TB, kind string) *redis.Client {
	t.Helper()
	options := clientOptions()
	options.MaxRetries = -1
	if kind == "embedded" {
		own, err := embedded.Open(embedded.Config{})
		expect.NoError(t, "opening an embedded store", err)
		p.run.Cleanup(func() { _ = own.Close() })
		options.Addr = "127.0.0.1:0" // never dialed
		options.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return own.Dial(ctx) }
	} else {
		options.Addr = redistest.Start(&p.run).Addr()
	}
	client := redis.NewClient(options)
	p.run.Cleanup(func() { _ = client.Close() })
	return client
}

func clientOptions() *redis.Options {
	return &redis.Options{
		Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// lasting stands in for the test that owns a server where all tests do. It has only what package
// redistest asks for.
type lasting struct {
	testing.TB

	mu      sync.Mutex
	cleanup []func()
}

// end does what was left for the end of the run, the last first.
func (l *lasting) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.cleanup) > 0 {
		last := len(l.cleanup) - 1
		l.cleanup[last]()
		l.cleanup = l.cleanup[:last]
	}
}

// Cleanup implements testing.TB.
func (l *lasting) Cleanup(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanup = append(l.cleanup, do)
}

// TempDir implements testing.TB.
func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "scripts-test")
	if err != nil {
		l.Fatalf("making a directory: %v", err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Fatalf implements testing.TB. A test that asked for a server cannot go on without it.
func (*lasting) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Context implements testing.TB.
func (*lasting) Context() context.Context { return context.Background() }

// Failed implements testing.TB.
func (*lasting) Failed() bool { return false }

// Helper implements testing.TB.
func (*lasting) Helper() {}
