package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// post receives what is published to this process, one channel for all its waiters, and wakes the
// one whose turn has come. The first that waits opens the subscription, which then stays. Close it
// at the end.
type notifier struct {
	channel string

	mu      sync.Mutex
	waiting map[string]chan notification // by token
	ready   bool                         // what is published arrives
	// closed when the attempt to listen that is under way has come to something; nil = none is
	starts chan struct{}
	cancel context.CancelFunc
	reader sync.WaitGroup
	closed bool
}

// news is what a waiter is told: that its turn may have come; that the lock was handed over to it;
// or, if it was given back in this very process, its grant.
type notification struct {
	handed bool  // its turn in the line of its process has come, whose lease it has
	fence  int64 // 0 = it has to ask
	// the waiter's newest look, as Redis knew it when it handed the lock over; 0 = it did not
	poll int64
	// by the Redis server, and, unless it was handed over, the local moment before it was asked
	now, sent time.Time
}

// readNews reads a message, 'token fence since look'. One that cannot be read has its waiter look.
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

// listens reports whether what is published arrives.
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
		delete(p.waiting, token)
	}
}

// tell gives the news to the waiter with that token.
func (p *notifier) notify(token string, what notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wake(p.waiting[token], what)
}

// tellAll has everybody look.
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
	default: // nobody waits, or it has been told and has not looked yet; then it looks, and hears the same
	}
}

// listen sees to it that what is published arrives. Without a subscription, since Redis is away,
// waiters look by themselves and the next one tries again.
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
			l.log.Warn("lock: waiters look by themselves, since they cannot be told", "error", err)
		}
		p.set(false)
	})
}

// set notes whether this process listens now.
func (p *notifier) set(ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = ready
	if p.starts != nil {
		close(p.starts)
		p.starts = nil
	}
}

// read passes on what is published, until the context ends. What was published while the connection
// was lost nobody has heard: then everybody is to look.
func (p *notifier) read(ctx context.Context, l *Locks) error {
	inbox, err := l.store.Subscribe(ctx, p.channel)
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
