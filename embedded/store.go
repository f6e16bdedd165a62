package embedded

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/coatcheck/coatcheck/internal/driver"
)

// The defaults of a [Config], and the limits of the store.
const (
	DefaultMaxBytes = 256 << 20
	// MinTTL is the shortest time to live that a key can be given. A reply may wait that long for a
	// busy process.
	MinTTL = 100 * time.Millisecond
)

// Config is how much a store keeps, in memory. The zero value is ready.
type Config struct {
	MaxBytes int64        // how much memory what it holds may take; 0 = DefaultMaxBytes
	Logger   *slog.Logger // nil = slog.Default()
}

// Store is a miniredis with a clock, a cap and an incarnation. Its methods are safe for concurrent
// use.
type Store struct {
	maxBytes    int64
	logger      *slog.Logger
	incarnation string

	closing sync.Once
	readers sync.WaitGroup // one for every connection

	// exec is held while one command or one script with its calls runs, and guards the rest.
	exec    sync.Mutex
	redis   *miniredis.Miniredis
	pass    bool  // the next command that reaches the hook is the store's own
	probe   probe // for questions to miniredis
	script  probe // takes a script's reply
	clock   clock
	weights weights
	touched []touch // keys that the command under way may have changed
	conns   map[*conn]struct{}
	closed  bool
}

// Open starts a store. The caller ends it with [Store.Close].
func Open(cfg Config) (*Store, error) {
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("embedded: MaxBytes %d is negative", cfg.MaxBytes)
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	s, err := newStore(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded: start miniredis: %w", err)
	}
	return s, nil
}

func newStore(cfg Config) (*Store, error) {
	s := &Store{
		maxBytes:    cfg.MaxBytes,
		logger:      cfg.Logger,
		redis:       miniredis.NewMiniRedis(),
		probe:       newProbe(),
		script:      newProbe(),
		incarnation: newIncarnation(),
		conns:       map[*conn]struct{}{},
	}
	unused, err := s.redis.Dial() // starts miniredis without a listener
	if err != nil {
		return nil, err
	}
	if err := unused.Close(); err != nil {
		return nil, err
	}
	s.clock.init(s.expireIdle)
	s.weights.clear()
	s.redis.Server().SetPreHook(s.hook)
	return s, nil
}

// Dial returns a new connection to the store, inside the process. The context bounds only the call.
// It fails with net.ErrClosed after [Store.Close].
func (s *Store) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("embedded: dial: %w", err)
	}
	s.exec.Lock()
	defer s.exec.Unlock()
	if s.closed {
		return nil, fmt.Errorf("embedded: dial: %w", net.ErrClosed)
	}
	near, far := net.Pipe()
	c := newConnLocked(s, far)
	s.conns[c] = struct{}{}
	s.readers.Add(1)
	go c.serve()
	return near, nil
}

// Incarnation names the state that the store holds, in 40 hex digits: another one at each start.
func (s *Store) Incarnation() string { return s.incarnation }

// Close ends all connections. What the store held is gone. It returns nil, also when it is called
// again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.exec.Lock()
		s.closed = true
		s.clock.stop()
		s.hangUpLocked()
		s.exec.Unlock()
		s.readers.Wait()
		s.redis.Close()
	})
	return nil
}

func (s *Store) hangUpLocked() {
	for c := range s.conns {
		c.pipe.Close()
	}
}

// probe is the store's own peer of miniredis, and the buffer of its replies.
type probe struct {
	peer    *server.Peer
	written *bytes.Buffer
	replies *bufio.Reader
}

func newProbe() probe {
	written := new(bytes.Buffer)
	return probe{peer: server.NewPeer(bufio.NewWriter(written)), written: written, replies: bufio.NewReader(written)}
}

// askLocked runs a command for the store itself. caller is the Ctx of the peer that it asks for:
// inside a script miniredis already holds its lock, and recognizes the Ctx of the script's peer.
func (s *Store) askLocked(caller any, args ...string) (any, error) {
	s.probe.peer.Ctx = caller
	s.dispatchLocked(s.probe.peer, args)
	s.probe.peer.Flush()
	return server.ParseReply(s.probe.replies)
}

// dispatchLocked hands a command to miniredis, past the hook.
func (s *Store) dispatchLocked(peer *server.Peer, args []string) {
	s.pass = true
	s.redis.Server().Dispatch(peer, args)
}

// This package serves the URL embedded: of package redisstore.
func init() { //nolint:gochecknoinits // as drivers of database/sql do
	driver.Register(func(config driver.Config) (driver.Store, error) {
		store, err := Open(Config{MaxBytes: config.MaxBytes, Logger: config.Logger})
		if err != nil {
			return nil, err
		}
		return store, nil
	})
}
