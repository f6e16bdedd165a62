package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// ErrOverloaded means that requests under way use all the memory that they may.
var ErrOverloaded = errors.New("frontdoor: requests under way take as much memory as they may")

// ErrShare means that the requests under way of one caller use its share of that memory. It is an
// ErrOverloaded.
var ErrShare = fmt.Errorf("%w: those of one caller, its share", ErrOverloaded)

// The counted sizes. A received byte is in memory about twice: as read and as parsed.
const (
	copies     = 2
	freeHeader = 4 << 10  // of a header, which net/http has buffers for in any case
	freeFields = 256      // of what has come by HTTP/2
	freeAnswer = 16 << 10 // of one piece of an answer

	fieldMemory = 40 // of an hpack.HeaderField, for which one byte by HTTP/2 is enough

	streamMemory  = 32 << 10 // with which a body is copied
	requestMemory = 16 << 10 // of one of many requests of a connection: a goroutine and buffers
)

// What a connection of HTTP/2 takes at most before a handler has seen it, beside a header. net/http
// would have 1 MiB for either, for a frame as soon as its length has come.
const (
	frameSize  = 16 << 10
	windowSize = 256 << 10 // of the bodies on a connection together
)

// DefaultMaxBytes is a quarter of the memory limit of the process (GOMEMLIMIT), else 256 MiB.
func DefaultMaxBytes() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 256 << 20
	}
	return max(limit/4, 8<<20)
}

// BytesInFlight returns the counted memory of requests under way: headers, bodies, and answers that
// wait for their clients.
func (d *Door) BytesInFlight() int64 { return d.bytes.Load() }

// take counts n bytes, unless that is too much.
func (d *Door) take(n int64) error {
	used := d.bytes.Add(n)
	if used < d.config.MaxBytes || n > 0 && used == d.config.MaxBytes {
		return nil
	}
	d.bytes.Add(-n)
	return ErrOverloaded
}

// reclaim makes stalled bodies and stalled answers release their bytes. The caller holds no lock:
// by HTTP/2 a deadline waits for the goroutine that serves its connection. No other request waits
// for that. Thousands that did took more memory than a pod has.
func (d *Door) reclaim() {
	if !d.pressing.TryLock() {
		return
	}
	defer d.pressing.Unlock()
	now := time.Now()
	if now.Sub(d.pressed) < lingerTime/2 {
		return
	}
	d.pressed = now
	d.bodiesMu.Lock()
	bodies, unsent := slices.Collect(maps.Keys(d.bodies)), slices.Collect(maps.Keys(d.unsent))
	d.bodiesMu.Unlock()
	for _, b := range bodies {
		b.hurry()
	}
	for _, a := range unsent {
		a.hurry()
	}
}

// load is what a connection takes of the budget, or a request on a connection with many at once. On
// nil, an uncounted connection, its methods do nothing.
type load struct {
	door *Door

	mu    sync.Mutex
	taken int64
	owner *string // whose share it counts for; nil = no caller's
	ended bool
}

// take counts n bytes until the request is answered, unless that is too much.
func (l *load) take(n int64) error {
	if l == nil {
		return nil
	}
	err := l.try(n)
	if err == ErrOverloaded { //nolint:errorlint // what is over a caller's share is its own matter
		l.door.reclaim()
	}
	return err
}

// errEnded means that a load has ended.
var errEnded = fmt.Errorf("%w, and this one has been answered", ErrOverloaded)

// try counts n bytes if they fit. No bytes fit a load that has ended.
func (l *load) try(n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return errEnded
	case l.owner != nil && !l.door.shares.TakeMany(*l.owner, int(n)):
		return ErrShare
	}
	err := l.door.take(n)
	switch {
	case err == nil:
		l.taken += n
	case l.owner != nil:
		l.door.shares.Add(*l.owner, int(-n))
	}
	return err
}

// add counts n bytes that are already used, and reports whether they are too many.
func (l *load) add(n int64) (tooMany bool) {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.addLocked(n)
	return l.door.bytes.Load() > l.door.config.MaxBytes
}

func (l *load) addLocked(n int64) {
	l.taken += n
	l.door.bytes.Add(n)
	if l.owner != nil {
		l.door.shares.Add(*l.owner, int(n))
	}
}

// release releases the counted bytes.
func (l *load) release() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(-l.taken)
	l.owner = nil
}

// own counts what is taken, and what will be, as an owner's.
func (l *load) own(owner string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.owner != nil:
	case !l.door.shares.TakeMany(owner, int(l.taken)):
		return ErrShare
	default:
		l.owner = &owner
	}
	return nil
}

// end releases the counted bytes and counts no more.
func (l *load) end() {
	l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

type loadKey struct{}

// loadOf returns the load of a request; nil if it is not counted.
func loadOf(ctx context.Context) *load {
	if l, ok := ctx.Value(loadKey{}).(*load); ok {
		return l
	}
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		return c.load
	}
	return nil
}

// Reserve counts n bytes that a request is about to take, such as those of a large answer, until
// it is answered. It returns [ErrOverloaded] if that is too much, and for n = 0 if nothing is left.
func Reserve(ctx context.Context, n int64) error { return loadOf(ctx).take(n) }

// Own counts the bytes of a request, those that it has taken and those that it will, as a caller's,
// who has a share of the memory. It returns [ErrShare] if that is used up.
func Own(ctx context.Context, caller string) error {
	Know(ctx)
	return loadOf(ctx).own(caller)
}

// Count counts n bytes that a request has taken, whether or not that is too much, until it is
// answered.
func Count(r *http.Request, n int64) { loadOf(r.Context()).add(n) }
