package embedded

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// The defaults of a [Config], and the limits of the store.
const (
	DefaultMaxKeys      = 1_000_000
	DefaultMaxBytes     = 256 << 20
	DefaultCompactBytes = 16 << 20
	// MinTTL is the shortest time to live that a key can be given. A reply may wait that long for
	// the disk or for a busy process.
	MinTTL = 100 * time.Millisecond
	// CounterJump is added at a start after an unclean stop to every string that is a 64-bit
	// integer without expiry. One that would pass 2^63-1 stays as it is.
	CounterJump = 1000
)

// ErrInUse means that another store has the data directory open.
var ErrInUse = errors.New("the data directory is in use by another process")

// ErrCorrupt means that a file of the data directory is damaged other than by a crash while it was
// written. Nothing was changed.
var ErrCorrupt = errors.New("corrupt data")

// Config is where and how much a store keeps. The zero value is ready, and keeps nothing on disk.
//
// The directory (0700, files 0600) holds snapshot.resp, log-<n>.resp, state.json and the lock file.
// Snapshot and logs are Redis commands, with an ECHO after each group that carries its checksum. To
// move to a real Redis, stop the process cleanly, after which the snapshot holds everything, and
// send it:
//
//	redis-cli --pipe < snapshot.resp
//
// The new Redis has another incarnation, which packages on it notice. A log is not for this: it
// gives each key's expiry many times over.
//
// When the log outgrows [Config.CompactBytes] and twice the snapshot, a new snapshot is written
// while the store goes on serving. Listing its keys stops it for a moment (about 0.5 s with a
// million keys, 0.03 s with a hundred thousand).
type Config struct {
	// the data directory, made if missing; "" = everything is gone when the store ends
	Dir      string
	MaxKeys  int   // how many keys it may hold; 0 = DefaultMaxKeys
	MaxBytes int64 // how much memory what it holds may take; 0 = DefaultMaxBytes
	// size of the log, in bytes, below which it is never compacted; 0 = DefaultCompactBytes
	CompactBytes int64
	Logger       *slog.Logger // nil = silent
}

// complete sets the defaults, and returns all faults.
func (c *Config) complete() error {
	var faults []error
	if c.MaxKeys < 0 {
		faults = append(faults, fmt.Errorf("MaxKeys %d is negative", c.MaxKeys))
	}
	if c.MaxBytes < 0 {
		faults = append(faults, fmt.Errorf("MaxBytes %d is negative", c.MaxBytes))
	}
	if c.CompactBytes < 0 {
		faults = append(faults, fmt.Errorf("CompactBytes %d is negative", c.CompactBytes))
	}
	c.MaxKeys = cmp.Or(c.MaxKeys, DefaultMaxKeys)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.CompactBytes = cmp.Or(c.CompactBytes, DefaultCompactBytes)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return errors.Join(faults...)
}

// Store is a miniredis with a clock, a cap, an incarnation and perhaps a data directory. Its
// methods are safe for concurrent use.
type Store struct {
	maxKeys     int
	maxBytes    int64
	logger      *slog.Logger
	incarnation string
	cleanStart  bool
	journal     *journal // nil without a data directory

	closing  sync.Once
	closeErr error
	readers  sync.WaitGroup // one for every connection

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
	failed  error // why the journal cannot be written any more
}

// Open starts a store, and loads the data directory. The error wraps [ErrInUse] or [ErrCorrupt] if
// it is one of them. The caller ends the store with [Store.Close].
func Open(cfg Config) (*Store, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("embedded: config: %w", err)
	}
	s, err := newStore(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded: start miniredis: %w", err)
	}
	if cfg.Dir == "" {
		s.incarnation, s.cleanStart = newIncarnation(), true
		return s, nil
	}
	if err := s.openDir(cfg); err != nil {
		s.redis.Close()
		return nil, fmt.Errorf("embedded: open %s: %w", cfg.Dir, err)
	}
	return s, nil
}

func newStore(cfg Config) (*Store, error) {
	s := &Store{
		maxKeys: cfg.MaxKeys, maxBytes: cfg.MaxBytes,
		logger: cfg.Logger,
		redis:  miniredis.NewMiniRedis(),
		probe:  newProbe(),
		script: newProbe(),
		conns:  map[*conn]struct{}{},
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

// Incarnation names the incarnation of the state that the store holds, in 40 hex digits. With a
// data directory it survives every stop that loses nothing: see CleanStart.
func (s *Store) Incarnation() string { return s.incarnation }

// CleanStart reports whether the store certainly has everything that was ever answered: there is no
// data directory, or it is new, or was stopped cleanly, or only the process was killed, and the
// machine (Linux) has not been restarted since.
func (s *Store) CleanStart() bool { return s.cleanStart }

// Close ends all connections, writes the last snapshot and marks the stop as clean. Later calls
// return the first one's error.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.exec.Lock()
		s.closed = true
		s.clock.stop()
		s.hangUpLocked()
		s.exec.Unlock()
		s.readers.Wait()
		if s.journal != nil {
			if err := s.journal.close(); err != nil {
				s.closeErr = fmt.Errorf("embedded: close: %w", err)
			}
		}
		s.redis.Close()
	})
	return s.closeErr
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
