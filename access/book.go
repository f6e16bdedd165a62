package access

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Config says where records come from. The zero value of each field means the default beside it.
type Config struct {
	// a YAML file of keys, certificates and what callers without one may do
	File  string
	Keys  []Record          // more keys, such as those of the environment
	Store *redisstore.Store // where keys are that were stored with Keys.Add; nil = nowhere
	Every time.Duration     // how often file and store are read again; 0 = 5 s
	Limit Limit             // of every principal that has none of its own

	Logger *slog.Logger // nil = no log
}

// Book knows what callers may do, as its sources say, which it reads again and again until Close.
// It is safe for concurrent use.
type Book struct {
	config Config
	log    *slog.Logger
	set    atomic.Pointer[set]
	now    func() time.Time
	read   atomic.Bool // the store was read once
	ended  sync.WaitGroup

	mu     sync.Mutex // of what follows, and of the configuration's File, Keys and Limit
	end    context.CancelFunc
	file   Set
	stored Set
	seen   watched
	missed string // why the store could not be read last; "" = it was
	wrong  []string
}

// Open reads the sources and begins to read them again every so often. A file with faults is an
// error that tells all of them. A store that does not answer is not: until it does, keys that are
// in no other source are refused with [ErrNotRead].
func Open(ctx context.Context, config Config) (*Book, error) {
	if config.Every == 0 {
		config.Every = 5 * time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Book{config: config, log: config.Logger, now: time.Now}
	b.set.Store(&set{})
	if err := b.Reload(ctx); err != nil && !errors.Is(err, redisstore.ErrUnavailable) {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.followLocked(ctx)
	return b, nil
}

// Close ends the reading. What is in force stays. Of a nil book it does nothing.
func (b *Book) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	end := b.end
	b.mu.Unlock()
	if end != nil {
		end()
	}
	b.ended.Wait()
}

// Reload reads file and store at once. What cannot be read leaves what was read last in force; the
// error tells every fault.
func (b *Book) Reload(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := errors.Join(b.readFileLocked(), b.readStoreLocked(ctx))
	b.joinLocked()
	return err
}

// Change puts another file, other keys of the environment and another limit in force, as [Config]
// has them. If the file is wrong, everything stays as it was; the error tells every fault.
func (b *Book) Change(ctx context.Context, file string, keys []Record, limit Limit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, seen := b.config.File, b.seen
	if file != before {
		b.config.File, b.seen = file, watched{}
	}
	if err := b.readFileLocked(); err != nil {
		b.config.File, b.seen = before, seen
		return err
	}
	if file == "" {
		b.file, b.wrong = Set{}, nil
	}
	b.config.Keys, b.config.Limit = keys, limit
	b.joinLocked()
	b.followLocked(ctx)
	return nil
}

// followLocked begins to read again what can change, unless that has begun.
func (b *Book) followLocked(ctx context.Context) {
	if b.end != nil || b.config.File == "" && b.config.Store == nil {
		return
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	b.end = end
	b.ended.Go(func() { b.watch(life) })
}

func (b *Book) watch(ctx context.Context) {
	tick := time.NewTicker(b.config.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.look(ctx)
	}
}

// look reads the store, and the file if it is new and stands still.
func (b *Book) look(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookAtFileLocked()
	_ = b.readStoreLocked(ctx) // it is logged once
	b.joinLocked()
}

// joinLocked puts what was read in force.
func (b *Book) joinLocked() {
	all, twice := join(b.config.Limit, b.file, Set{Keys: b.config.Keys}, b.stored)
	for _, id := range twice {
		b.log.Debug("two sources have a key of the same id: the file counts before the environment, and that before the store", "key_id", id)
	}
	b.set.Store(all)
	if b.config.Store != nil && b.missed == "" {
		b.read.Store(true)
	}
}

// readStoreLocked reads the keys of the store.
func (b *Book) readStoreLocked(ctx context.Context) error {
	if b.config.Store == nil {
		return nil
	}
	keys, err := List(ctx, b.config.Store)
	if ctx.Err() != nil {
		return ctx.Err() // this process ends
	}
	if err != nil {
		if b.missed == "" {
			b.log.Warn("the keys of the store cannot be read; those that were read last stay in force", "error", err)
		}
		b.missed = err.Error()
		return err
	}
	if b.missed != "" {
		b.log.Info("the keys of the store are read again", "keys", len(keys))
	}
	b.missed, b.stored = "", Set{}
	for _, one := range keys {
		if one.Err == nil {
			b.stored.Keys = append(b.stored.Keys, one.Record)
		}
	}
	return nil
}

// Key finds who shows a key: [ErrBadKey], [ErrExpired] or [ErrNotRead] if the key belongs to no
// caller that this service knows.
func (b *Book) Key(text string) (Caller, error) {
	key, err := ParseKey(text)
	if err != nil {
		return Caller{}, ErrBadKey
	}
	caller, err := b.set.Load().key(key, b.now())
	if errors.Is(err, ErrBadKey) && b.config.Store != nil && !b.read.Load() {
		return Caller{}, ErrNotRead
	}
	return caller, err
}

// Has reports whether there is a key of an id.
func (b *Book) Has(id string) bool {
	_, known := b.set.Load().keys[id]
	return known
}

// Certificate finds whose a client certificate is. It must have been verified. ok is false for one
// that belongs to no caller.
func (b *Book) Certificate(of *x509.Certificate) (caller Caller, ok bool) {
	return b.set.Load().certificate(of)
}

// Anonymous is a caller that shows neither a key nor a certificate.
func (b *Book) Anonymous() Caller { return b.set.Load().anonymousCaller() }

// Faults are those of the last reading of the file, a line each; none if what is in force is what
// it says.
func (b *Book) Faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}
