package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// A waiter is notified when its turn has come. In case the notification is lost, it also polls:
// when the holder's lease can end, and about once in a claim window, less often the more waiters
// are before it. Any waiter's poll advances the whole queue.
const (
	nearest = 16 // waiters that poll once in a window
	slowest = 5  // windows between two polls of later waiters
	// rarest is the longest time between two polls: after seven seconds of silence a process whose
	// window is shorter than the waiter's passes it over.
	rarest = 5 * time.Second
)

// placeKept is how long a waiter that does not poll keeps its place: longer than a restart of Redis
// or of a service takes. It is the same for all processes, whatever their windows: a release
// concludes from it and from the end of the place when the waiter polled.
const placeKept = 2 * time.Minute

// releaseTimeout bounds a release whose context has ended.
const releaseTimeout = 2 * time.Second

// releaseContext is a context for that. It needs no timer if a call of the store ends sooner by
// itself.
func (l *Locks) releaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	if onstore.Timeout(l.store) <= releaseTimeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, releaseTimeout)
}

// waits reports to the store's observers that a request may wait, until ended is called.
func (l *Locks) waits(a *asker) (ended func(granted bool)) {
	if a.once || a.candidate {
		return func(bool) {}
	}
	a.heard, ended = pipeline.Of(l.store).LockWaits()
	return ended
}

// waitContext is a context that ends with a wait as well; 0 = the wait is not bounded.
func waitContext(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, wait)
}

// waitInQueue waits in the queue at Redis until the lock is granted. Its errors are those of
// Acquire.
func (l *Locks) waitInQueue(ctx context.Context, a *asker, notified <-chan notification) (Grant, error) {
	waiting, cancel := waitContext(ctx, a.Wait)
	defer cancel()
	var last error = &HeldError{Left: -1}
	heard := false // an answer of Redis
	asking := ctx  // the first time, though the wait may be over: it asks once at least
	for answered := time.Now(); ; asking = waiting {
		reply, err := l.enterInFull(asking, a, l.inboxOf(a))
		pause := l.config.Window / 10
		switch {
		case err == nil && (reply.Word() == "granted" || reply.Word() == "capacity"):
			return a.granted(reply)
		case err == nil:
			answered, heard, last = time.Now(), true, refusal(reply)
			if pause, err = l.untilPoll(a, reply); err != nil {
				return Grant{}, err
			}
		case waiting.Err() != nil: // sleep returns at once
			if !heard && ctx.Err() == nil {
				last = err
			}
		case l.isFinal(err, answered):
			l.unanswered(a)
			l.abandon(ctx, a, err)
			return Grant{}, err
		default:
			l.unanswered(a)
			if !heard {
				last = err
			}
		}
		step.At("lock: is about to sleep")
		message, ok := sleep(waiting, notified, pause)
		step.At("lock: woke")
		switch {
		case !ok:
			return Grant{}, l.giveUp(ctx, a, last)
		case message.poll != 0:
			if grant, ok := l.accept(a, message); ok {
				return grant, nil
			}
		case a.isPassed(message):
			return a.passed(message), nil
		}
	}
}

// inboxOf is where a waiter is notified, and whether it keeps its place: scripts/lib/lock_line.lua.
func (l *Locks) inboxOf(a *asker) string {
	if a.KeepPlace {
		return l.inbox + "~"
	}
	return l.inbox
}

// isFinal reports whether an error of Redis ends a wait. Redis last answered at that time.
func (l *Locks) isFinal(err error, answered time.Time) bool {
	return errors.Is(err, redisstore.ErrWrongType) || errors.Is(err, redisstore.ErrClosed) || time.Since(answered) > l.outage
}

// untilPoll is how long a waiter may sleep after a reply without a notification. The poll of one
// that has its place in the queue is recorded: see accept.
func (l *Locks) untilPoll(a *asker, reply scripts.Reply) (time.Duration, error) {
	if reply.Word() == "doubt" {
		wait := time.Duration(0)
		err := reply.Scan(&wait)
		return min(wait+time.Millisecond, slowest*l.config.Window), err
	}
	place, left, waited := 0, time.Duration(0), time.Duration(0)
	if reply.Word() != "waiting" {
		return 0, reply.Unexpected()
	}
	if err := reply.Scan(&place, &left, &waited); err != nil {
		return 0, err
	}
	if a.KeepPlace && a.heard != nil {
		a.heard(waited)
	}
	a.waited = poll{a.polls, a.sent}
	often := min(l.config.Window*time.Duration(max(nearest, place))/nearest, slowest*l.config.Window, rarest)
	pause := often - rand.N(often/5) //nolint:gosec // it spreads the polls of many and hides nothing
	// one after the other, so that the first poll can advance all of them
	if left >= 0 {
		pause = min(pause, left+time.Duration(1+2*min(place, nearest))*time.Millisecond)
	}
	return pause, nil
}

// accept returns the grant in a notification, with which its holder begins at once: it asks for the
// rest of its TTL while it works, if it holds for more than an instant. Redis keeps the lock for it
// for the claim window that the notification names, from the handover, which was after Redis
// answered the poll that it names. So the holder counts on that long from when it sent that poll,
// and on no clock of another machine. It asks first if too little of that remains, if more of it is
// wanted as a margin, or if replicas are to confirm the grant.
func (l *Locks) accept(a *asker, heard notification) (Grant, bool) {
	span := min(heard.window, a.TTL)
	grant := Grant{
		Name: a.name, Token: a.Token, Fence: heard.fence, TTL: a.TTL,
		Since: heard.now, Until: heard.now.Add(span), Now: heard.now.Add(-time.Since(a.waited.sent)),
		sent: a.waited.sent, good: span, keys: a.keys,
	}
	early := a.enters && heard.poll == a.waited.number && keepalive.Age(a.waited.sent) <= span/2
	return grant, early && l.config.Margin <= span/10 && l.store.Ack() == 0
}

// isPassed reports whether Redis passed the lock on to this request, and not to an earlier one with
// the same token: then the release was sent after a poll that was answered. Otherwise it asks.
func (a *asker) isPassed(heard notification) bool {
	return heard.fence != 0 && a.waited.number != 0 && !heard.sent.Before(a.waited.sent)
}

// passed is the grant that Redis passed on when another holder of this process gave the lock back.
func (a *asker) passed(heard notification) Grant {
	return Grant{
		Name: a.name, Token: a.Token, Fence: heard.fence, TTL: a.TTL, Since: heard.now, Until: heard.now.Add(a.TTL), Now: heard.now,
		sent: heard.sent, keys: a.keys,
	}
}

// sleep waits for a notification, for a while, or for the end of the context. It reports whether
// the context is still open.
func sleep(ctx context.Context, notified <-chan notification, d time.Duration) (heard notification, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return notification{}, false
	case heard = <-notified:
	case <-timer.C:
	}
	return heard, ctx.Err() == nil
}

// giveUp ends a request that has waited long enough. It gives back its place in the queue, or a
// lock that was handed over just now.
func (l *Locks) giveUp(ctx context.Context, a *asker, last error) error {
	if l.takeBack(ctx, a, false) {
		last = l.named(ctx, a.name, last)
	}
	return refused(ctx, last)
}

// refused is the error of a request that has waited long enough.
func refused(ctx context.Context, last error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", last, cause)
	}
	return last
}

// named is a refusal with what is known of the holder by now, as one without a wait has it: the
// answers to those that wait have no names.
func (l *Locks) named(ctx context.Context, name string, refusal error) error {
	held, is := errors.AsType[*HeldError](refusal)
	if !is || held.Owner != "" {
		return refusal
	}
	ctx, cancel := l.releaseContext(ctx)
	defer cancel()
	info, err := l.Get(ctx, name)
	if err != nil || len(info.Holders) == 0 {
		return refusal // it was held, by one that is unknown
	}
	first := info.Holders[0]
	known := &HeldError{Owner: first.Owner, Since: first.Since, Left: -1}
	if info.Mode != ModeExclusive {
		known.Holders = len(info.Holders) + info.Further
	}
	if !first.Until.IsZero() {
		known.Left = max(first.Until.Sub(info.Now), 0)
	}
	return known
}

// abandon gives back what a request with an unknown outcome may have got.
func (l *Locks) abandon(ctx context.Context, a *asker, err error) {
	if unknown(err) {
		l.takeBack(ctx, a, true)
	}
}

// takeBack withdraws a request, at once or, if it is not made again, as soon as Redis answers.
// underway means that the request may reach Redis after that. It reports whether Redis answers, as
// far as is known.
func (l *Locks) takeBack(ctx context.Context, a *asker, underway bool) (answers bool) {
	if a.KeepPlace {
		return true
	}
	ctx, cancel := l.releaseContext(ctx)
	defer cancel()
	_, err := l.giveLease(ctx, a.keys, a.Token)
	late := away(err) || underway && isAbsent(err)
	if late && a.own && l.withdrawLater(a.name, a.keys, a.Token, isAbsent(err)) {
		return !away(err)
	}
	if err != nil && !isLost(err) {
		l.log.WarnContext(ctx, notWithdrawn, "name", a.name, "error", err)
	}
	return !away(err)
}
