package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/watch"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Config is the sources of records. The zero value of each field means the default beside it.
type Config struct {
	// a YAML file of keys, certificates and what callers without one may do
	File  string
	Keys  []Record          // more keys, such as those of the environment
	Store *redisstore.Store // where keys are that were stored with Keys.Add; nil = nowhere
	Every time.Duration     // how often file and store are read again; 0 = 5 s
	Limit Limit             // of every principal that has none of its own

	Logger *slog.Logger // nil = no log
}

// Policy is the rights of callers. It reads its sources again and again until Close. It is safe for
// concurrent use.
type Policy struct {
	config Config
	log    *slog.Logger
	set    atomic.Pointer[set]
	read   atomic.Bool // the store was read once

	mu     sync.Mutex // of what follows, and of the configuration's File, Keys and Limit
	stop   func()     // ends the looks; nil = none have begun
	file   Set
	stored Set
	seen   watch.Seen
	missed string // why the store could not be read last; "" = it was
}

// Open reads the sources and begins to read them again every so often. A file with faults is an
// error that lists them all. A store that does not answer is no error: until it does, keys that are
// in no other source are refused with [ErrNotRead].
func Open(ctx context.Context, config Config) (*Policy, error) {
	config.Every = cmp.Or(config.Every, 5*time.Second)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Policy{config: config, log: config.Logger}
	b.set.Store(&set{})
	file, stored := b.reload(ctx)
	if errors.Is(stored, redisstore.ErrUnavailable) {
		stored = nil
	}
	if err := errors.Join(file, stored); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.followLocked()
	return b, nil
}

// Close ends the reading. What is in force stays. Of a nil policy it does nothing.
func (p *Policy) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	stop := p.stop
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Reload reads file and store at once. A source that cannot be read keeps its last state in force;
// the error lists every fault.
func (p *Policy) Reload(ctx context.Context) error { return errors.Join(p.reload(ctx)) }

// reload is Reload, with the faults of the file and of the store apart.
func (p *Policy) reload(ctx context.Context) (file, stored error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file, stored = p.readFileLocked(), p.readStoreLocked(ctx)
	p.joinLocked()
	return file, stored
}

// Change puts another file, other keys of the environment and another limit in force, as [Config]
// has them. If the file is wrong, everything stays as it was; the error lists every fault.
func (p *Policy) Change(file string, keys []Record, limit Limit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, seen := p.config.File, p.seen
	if file != before {
		p.config.File, p.seen = file, watch.Seen{}
	}
	if err := p.readFileLocked(); err != nil {
		p.config.File, p.seen = before, seen
		return err
	}
	if file == "" {
		p.file = Set{}
	}
	p.config.Keys, p.config.Limit = keys, limit
	p.joinLocked()
	p.followLocked()
	return nil
}

// followLocked begins to read again what can change, unless that has begun.
func (p *Policy) followLocked() {
	if p.stop == nil && (p.config.File != "" || p.config.Store != nil) {
		p.stop = watch.Every(p.config.Every, p.look)
	}
}

// look reads the store, and the file if it is new.
func (p *Policy) look(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookAtFileLocked()
	_ = p.readStoreLocked(ctx) // it is logged once
	p.joinLocked()
}

// joinLocked puts the sources' last states in force.
func (p *Policy) joinLocked() {
	all, twice := join(p.config.Limit, p.file, Set{Keys: p.config.Keys}, p.stored)
	for _, id := range twice {
		p.log.Debug("two sources have a key of the same id: the file counts before the environment, and that before the store",
			"key_id", id)
	}
	p.set.Store(all)
	if p.config.Store != nil && p.missed == "" {
		p.read.Store(true)
	}
}

func (p *Policy) readStoreLocked(ctx context.Context) error {
	if p.config.Store == nil {
		return nil
	}
	keys, err := List(ctx, p.config.Store)
	if ctx.Err() != nil {
		return ctx.Err() // this process ends
	}
	if err != nil {
		if p.missed == "" {
			p.log.Warn("the keys of the store cannot be read; those that were read last stay in force", "error", err)
		}
		p.missed = err.Error()
		return err
	}
	if p.missed != "" {
		p.log.Info("the keys of the store are read again", "keys", len(keys))
	}
	p.missed, p.stored = "", Set{}
	for _, one := range keys {
		if one.Err == nil {
			p.stored.Keys = append(p.stored.Keys, one.Record)
		}
	}
	return nil
}

// Key returns the caller of a key: [ErrBadKey], [ErrExpired] or [ErrNotRead] if the key belongs to
// no caller that this service knows.
func (p *Policy) Key(text string) (Caller, error) {
	key, err := ParseKey(text)
	if err != nil {
		return Caller{}, ErrBadKey
	}
	caller, err := p.set.Load().key(key, time.Now())
	if errors.Is(err, ErrBadKey) && p.config.Store != nil && !p.read.Load() {
		return Caller{}, ErrNotRead
	}
	return caller, err
}

// Has reports whether there is a key of an id.
func (p *Policy) Has(id string) bool {
	_, known := p.set.Load().keys[id]
	return known
}

// Certificate returns the caller of a client certificate, which must have been verified. ok is
// false if it belongs to no caller.
func (p *Policy) Certificate(of *x509.Certificate) (caller Caller, ok bool) {
	return p.set.Load().certificate(of)
}

// Limited returns a caller that was identified elsewhere with the limit of every principal, unless
// it has its own.
func (p *Policy) Limited(caller Caller) Caller { return p.set.Load().limited(caller) }

// Anonymous returns the caller without a key or certificate.
func (p *Policy) Anonymous() Caller {
	now := p.set.Load()
	return now.limited(now.anonymous)
}
