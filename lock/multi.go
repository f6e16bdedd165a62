package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// atOnce is how many locks can be acquired together.
const atOnce = 100

// Multi is several locks that are held together, or not at all. It is safe for concurrent use.
type Multi struct {
	ctx    context.Context // of the locks
	cancel context.CancelCauseFunc
	work   context.Context // of the work under all of them
	end    context.CancelCauseFunc
	held   []*Lock // in the order of their names
	watch  []func() bool

	release sync.Once
	outcome error
}

// AcquireAll acquires several locks, all or none, in the order of their names, so no two calls can
// wait for each other for ever. While it waits for a lock, the ones before it are held and renewed.
// Up to a hundred names; duplicates are taken once. Request.Wait bounds the waiting in all; a Token
// cannot be given. The errors are those of Acquire; after an error nothing is held.
//
// No variant takes all in one step, since every name is a slot of its own in a cluster.
func (l *Locks) AcquireAll(ctx context.Context, names []string, request Request) (*Multi, error) {
	return l.holdAll(ctx, names, request)
}

// TryAcquireAll is AcquireAll without waiting.
func (l *Locks) TryAcquireAll(ctx context.Context, names []string, request Request) (*Multi, error) {
	request.once = true
	return l.holdAll(ctx, names, request)
}

func (l *Locks) holdAll(ctx context.Context, names []string, request Request) (*Multi, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 || len(names) > atOnce || request.Token != "" {
		return nil, fmt.Errorf("%w: 1 to %d names, and no token", ErrInvalid, atOnce)
	}
	m := &Multi{}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	m.work, m.end = context.WithCancelCause(m.ctx)
	began, bound := time.Now(), request.Wait
	for _, name := range names {
		if bound > 0 {
			request.Wait = max(bound-time.Since(began), time.Millisecond)
		}
		lock, err := l.hold(m.ctx, name, request)
		if err != nil {
			return nil, errors.Join(err, m.lost(), m.Release(ctx))
		}
		m.add(lock)
	}
	if err := m.Err(); err != nil {
		return nil, errors.Join(err, m.Release(ctx))
	}
	return m, nil
}

// add adds a lock. When it ends, all end.
func (m *Multi) add(lock *Lock) {
	m.held = append(m.held, lock)
	m.watch = append(m.watch, context.AfterFunc(lock.Context(), func() { m.cancel(lock.Err()) }))
}

// lost is the reason why one of the held locks has ended, or nil.
func (m *Multi) lost() error {
	for _, lock := range m.held {
		if err := lock.Err(); errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

// Locks are the single locks, with a fence each, in the order of their names.
func (m *Multi) Locks() []*Lock { return slices.Clone(m.held) }

// Context ends when one of the locks cannot be counted on any more.
func (m *Multi) Context() context.Context { return m.work }

// Done is closed when one of the locks cannot be counted on any more.
func (m *Multi) Done() <-chan struct{} { return m.work.Done() }

// Err is nil while all locks may be counted on; otherwise it is the reason, as of [Lock.Err].
func (m *Multi) Err() error {
	for _, lock := range m.held {
		if err := lock.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Validity is how long from now all of them may be counted on if no renewal is confirmed.
func (m *Multi) Validity() time.Duration {
	shortest := MaxTTL
	for _, lock := range m.held {
		shortest = min(shortest, lock.Validity())
	}
	return shortest
}

// Release gives all of them back, the last first. The errors of [Lock.Release] are joined.
func (m *Multi) Release(ctx context.Context) error {
	m.release.Do(func() {
		m.end(ErrReleased) // before the first of them can have another holder
		for i, lock := range slices.Backward(m.held) {
			m.watch[i]()
			m.outcome = errors.Join(m.outcome, lock.Release(ctx))
		}
		m.cancel(ErrReleased)
	})
	return m.outcome
}
