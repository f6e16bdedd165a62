package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/pipeline"
)

// notifier receives what is published to this process, on one channel for all its waiters, and
// wakes the waiter whose turn has come. The first waiter opens the subscription, which then stays.
// Close it at the end.
type notifier struct {
	channel string

	mu      sync.Mutex
	waiting map[string]chan notification // by token
	ready   bool                         // what is published arrives
	// closed when the attempt to subscribe has succeeded or failed; nil = none is under way
	starts chan struct{}
	cancel context.CancelFunc
	reader sync.WaitGroup
	closed bool
}

// notification wakes a waiter. Its turn may have come; or the lock was handed over to it; or, if
// the lock was given back in this process, it is the grant.
type notification struct {
	handed bool  // the lease of a local holder was handed on to it
	fence  int64 // 0 = it has to ask
	// the waiter's newest poll that Redis knew when it handed the lock over; 0 = none
	poll int64
	// by the Redis server, and, unless it was handed over, the local time before Redis was asked
	now, sent time.Time
}

// parseNotification parses a message, 'token fence since poll'. A malformed one only makes its
// waiter poll.
func parseNotification(message string) (token string, what notification) {
	token, rest, _ := strings.Cut(message, " ")
	words := strings.Fields(rest)
	if len(words) != 3 {
		return token, notification{}
	}
	fence, err1 := strconv.ParseInt(words[0], 10, 64)
	since, err2 := strconv.ParseInt(words[1], 10, 64)
	poll, err3 := strconv.ParseInt(words[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil || fence <= 0 || poll <= 0 {
		return token, notification{}
	}
	return token, notification{fence: fence, poll: poll, now: time.UnixMilli(since).UTC()}
}

// listens reports whether published messages arrive.
func (p *notifier) listens() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// address is the channel if this process listens on it, else "".
func (p *notifier) address() string {
	if p.listens() {
		return p.channel
	}
	return ""
}

// expect returns a channel that is sent to when the token's turn has come, or may have; forget ends
// that.
func (p *notifier) expect(token string) (notified <-chan notification, forget func()) {
	channel := make(chan notification, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = map[string]chan notification{}
	}
	p.waiting[token] = channel
	return channel, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.waiting[token] == channel { // else the token has been asked again meanwhile
			delete(p.waiting, token)
		}
	}
}

// notify sends a notification to the waiter with that token.
func (p *notifier) notify(token string, what notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wake(p.waiting[token], what)
}

// notifyAll makes all waiters poll.
func (p *notifier) notifyAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, notified := range p.waiting {
		wake(notified, notification{})
	}
}

func wake(notified chan notification, what notification) {
	select {
	case notified <- what:
	// no waiter, or one that has not polled since its last notification: its next poll has the same
	// answer
	default:
	}
}

// listen opens the subscription if there is none. If that fails, since Redis is away, waiters poll
// and the next one tries again.
func (p *notifier) listen(ctx context.Context, l *Locks) {
	p.mu.Lock()
	if !p.ready && p.starts == nil && !p.closed {
		p.startLocked(l)
	}
	starts := p.starts
	p.mu.Unlock()
	if starts == nil {
		return
	}
	select {
	case <-starts:
	case <-ctx.Done():
	}
}

func (p *notifier) startLocked(l *Locks) {
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	p.starts = make(chan struct{})
	p.reader.Go(func() {
		if err := p.read(ctx, l); err != nil && ctx.Err() == nil {
			l.log.Warn("lock: waiters poll, since the subscription failed", "error", err)
		}
		p.set(false)
	})
}

// set notes whether this process is subscribed.
func (p *notifier) set(ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = ready
	if p.starts != nil {
		close(p.starts)
		p.starts = nil
	}
}

// read passes on published messages until the context ends. Messages that were published while the
// connection was lost are lost: then all waiters poll.
func (p *notifier) read(ctx context.Context, l *Locks) error {
	inbox, err := pipeline.Of(l.store).Subscribe(ctx, p.channel)
	if err != nil {
		return err
	}
	p.set(true)
	for {
		message, missed, err := inbox.Next(ctx)
		if err != nil {
			return errors.Join(err, inbox.Close())
		}
		if missed {
			p.notifyAll()
			continue
		}
		p.notify(parseNotification(message))
	}
}

// close ends the subscription.
func (p *notifier) close() {
	p.mu.Lock()
	p.closed = true
	if p.cancel != nil {
		p.cancel()
	}
	p.mu.Unlock()
	p.reader.Wait()
}
