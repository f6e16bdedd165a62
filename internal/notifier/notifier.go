// Package notifier wakes the waiters of a process by what is published to it. All waiters share one
// subscription, on one channel of the store.
//
// A message may be lost: with the connection, or because it was published before the subscription
// was open. So a waiter registers, subscribes, asks Redis, and only then sleeps; and it polls as
// well, less often. After a lost connection all waiters poll.
package notifier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Notifier wakes the waiters of this process with values of type T; the zero value of T makes a
// waiter poll. It is safe for concurrent use. The first Listen opens the subscription, which then
// stays until Close.
type Notifier[T any] struct {
	channel string
	store   *redisstore.Store
	log     *slog.Logger
	parse   func(message string) (key string, what T)

	mu      sync.Mutex
	waiting map[string][]chan T
	ready   bool // what is published arrives
	// closed when the attempt to subscribe has succeeded or failed; nil = none is under way
	starts chan struct{}
	cancel context.CancelFunc
	reader sync.WaitGroup
	closed bool
	failed string // why the last attempt to subscribe failed, which the log has; "" = it has not
}

// New returns a notifier for a channel of the store. parse takes a message's key and value out.
func New[T any](store *redisstore.Store, channel string, log *slog.Logger, parse func(message string) (key string, what T)) *Notifier[T] {
	return &Notifier[T]{channel: channel, store: store, log: log, parse: parse, waiting: map[string][]chan T{}}
}

// Channel is the channel if this process is subscribed to it, else "".
func (n *Notifier[T]) Channel() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ready {
		return n.channel
	}
	return ""
}

// Expect returns a channel that is sent to when there may be something for the key; forget ends it.
func (n *Notifier[T]) Expect(key string) (notified <-chan T, forget func()) {
	waiter := make(chan T, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting[key] = append(n.waiting[key], waiter)
	return waiter, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		left := slices.DeleteFunc(n.waiting[key], func(other chan T) bool { return other == waiter })
		if n.waiting[key] = left; len(left) == 0 {
			delete(n.waiting, key)
		}
	}
}

// Notify wakes the waiters of a key.
func (n *Notifier[T]) Notify(key string, what T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wake(n.waiting[key], what)
}

// NotifyAll wakes all waiters.
func (n *Notifier[T]) NotifyAll(what T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, waiters := range n.waiting {
		wake(waiters, what)
	}
}

// wake sends to waiters that have polled since the last value: others poll with the same result.
func wake[T any](waiters []chan T, what T) {
	for _, waiter := range waiters {
		select {
		case waiter <- what:
		default:
		}
	}
}

// Listen opens the subscription if there is none, and waits until that has succeeded or failed, or
// the context ends. If it fails, since Redis is away, waiters poll and the next Listen tries again.
func (n *Notifier[T]) Listen(ctx context.Context) {
	n.mu.Lock()
	if !n.ready && n.starts == nil && !n.closed {
		n.startLocked()
	}
	starts := n.starts
	n.mu.Unlock()
	if starts == nil {
		return
	}
	step.At("notifier: waits for the subscription")
	select {
	case <-starts:
	case <-ctx.Done():
	}
}

func (n *Notifier[T]) startLocked() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.starts = cancel, make(chan struct{})
	n.reader.Go(func() {
		defer cancel()
		if err := n.read(ctx); err != nil && ctx.Err() == nil && n.isNews(err) {
			n.log.Warn("notifier: waiters poll, since the subscription failed", "error", err)
		}
		step.At("notifier: the subscription is over")
		n.set(false)
	})
}

// isNews reports whether an attempt has failed for another reason than the one before it: one that
// Redis refuses is made for each waiter.
func (n *Notifier[T]) isNews(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.failed
	n.failed = err.Error()
	return n.failed != before
}

// set notes whether this process is subscribed.
func (n *Notifier[T]) set(ready bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = ready
	if ready {
		n.failed = ""
	}
	if n.starts != nil {
		close(n.starts)
		n.starts = nil
	}
}

// read passes on published messages until the context ends.
func (n *Notifier[T]) read(ctx context.Context) error {
	inbox, err := pipeline.Of(n.store).Subscribe(ctx, n.channel)
	if err != nil {
		return err
	}
	step.At("notifier: has subscribed")
	n.set(true)
	for {
		message, missed, err := inbox.Next(ctx)
		step.At("notifier: has a message")
		if err != nil {
			return errors.Join(err, inbox.Close())
		}
		if missed {
			var poll T
			n.NotifyAll(poll)
			continue
		}
		n.Notify(n.parse(message))
	}
}

// Close ends the subscription.
func (n *Notifier[T]) Close() {
	n.mu.Lock()
	n.closed = true
	if n.cancel != nil {
		n.cancel()
	}
	n.mu.Unlock()
	n.reader.Wait()
}
