// Package health asks a store whether it works, for /readyz. However often it is asked, it asks the
// store about once a second: each look costs the store a write.
package health

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/redisstore"
)

const (
	// keep is how long an answer stands for those that ask next.
	keep = time.Second
	// patience is how long a look may take. Those that ask meanwhile wait for its answer.
	patience = 5 * time.Second
	// remembered is how long an answer tells what came before the next look. Longer ago, the store
	// may have worked meanwhile.
	remembered = 30 * time.Second
)

// Config sets up a Checker. All fields are needed.
type Config struct {
	Store *redisstore.Store
	// Title is the text of a store's error for clients, which names nothing of theirs.
	Title func(error) string
	// Changed is called when the store is another incarnation: confirmed writes may be missing.
	Changed func(ctx context.Context, found Incarnation)
	// Stopping is set when the process is about to end: Check reports that, and asks no store.
	Stopping *atomic.Bool
	Logger   *slog.Logger // has a line when the store stops working, and when it works again
}

// Answer is the state of the store: whether it answers and takes writes.
type Answer struct {
	Incarnation string // of the store, if it works; in a cluster of one of its masters
	Continuity  redisstore.Continuity
	// why it does not work, in words that are the same for all stores; "" = it works
	Class string
	// the same, with how many replicas have confirmed, which newer version has written, and in a
	// cluster at which master
	Reason string
	Since  time.Time // when it was first seen not to work; zero = it works
}

// Checker looks at a store. It is safe for concurrent use.
type Checker struct {
	config Config

	mu     sync.Mutex
	until  time.Time // the answer stands until then
	looked time.Time
	last   Answer
	lives  lives
}

// New returns a Checker, which has not asked yet.
func New(config Config) *Checker { return &Checker{config: config, lives: lives{}} }

// Check returns the store's answer of the last second, or asks it. A caller that leaves does not
// end the look, which others may wait for.
func (c *Checker) Check(ctx context.Context) Answer {
	if c.config.Stopping.Load() {
		return Answer{Class: "stopping", Reason: "stopping"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	before, recent := c.last, time.Since(c.looked) < remembered
	c.last, c.looked = c.look(ctx), time.Now()
	c.until = time.Now().Add(keep)
	switch reason := c.last.Reason; {
	case reason != "" && before.Reason != "" && recent:
		c.last.Since = before.Since
	case reason != "":
		c.last.Since = time.Now()
		c.config.Logger.WarnContext(ctx, "not ready", "reason", reason, "store", c.config.Store.Address())
	case before.Reason != "":
		c.config.Logger.InfoContext(ctx, "ready again")
	}
	return c.last
}

// Forget has the next Check ask the store.
func (c *Checker) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
}

// look asks every master, and writes a marker at each, to learn whether it takes writes.
func (c *Checker) look(ctx context.Context) Answer {
	if err := c.config.Store.Ping(ctx); err != nil {
		return c.refused(err)
	}
	found, err := incarnations(ctx, c.config.Store)
	for marker, at := range found {
		if at.Change != "" && c.lives.at(marker).changed(at) {
			c.config.Changed(ctx, at)
		}
	}
	if err != nil {
		return c.refused(err)
	}
	holds, err := c.config.Store.Continuity(ctx)
	if err != nil {
		return c.refused(err)
	}
	answer := Answer{Continuity: holds}
	for _, at := range found {
		answer.Incarnation = max(answer.Incarnation, at.ID) // any, the same each time
	}
	return answer
}

// refused is the answer for an error. In a cluster it names the master that was found.
func (c *Checker) refused(err error) Answer {
	title := c.config.Title(err)
	answer := Answer{Class: title, Reason: title}
	if shortfall, ok := errors.AsType[*redisstore.ShortfallError](err); ok {
		answer.Reason = "writes are " + shortfall.Error()
	}
	if newer, ok := errors.AsType[*redisstore.NewerError](err); ok {
		answer.Reason += ": " + newer.Error()
	}
	if node, ok := errors.AsType[*pipeline.NodeError](err); ok {
		answer.Reason += ", at " + node.Addr
	}
	return answer
}

// lives are those of the masters, by their markers.
type lives map[marker]*life

func (l lives) at(marker marker) *life {
	if l[marker] == nil {
		l[marker] = &life{}
	}
	return l[marker]
}

// life remembers what this process has seen last of the store.
type life struct {
	seen   bool
	losses int64
}

// changed reports whether the store may have lost something, or all of its state, since this
// process looked, or since the state in it was written. It compares with what this process knows as
// well, since the answer that reported a change may have been lost.
func (l *life) changed(found Incarnation) bool {
	changed := found.Change == Changed || l.seen && (l.losses != found.Losses || found.Change == First)
	l.seen, l.losses = true, found.Losses
	return changed
}
