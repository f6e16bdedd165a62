package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bsm/redislock"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/scripts"
)

// Grant is a lock that was granted, as a value: any process that has Name, Token and Fence can
// renew and release it. It is not renewed by itself, and its end is not reported: for work in this
// process use [Locks.Acquire].
type Grant struct {
	Name  string
	Token string // secret: it proves the grant
	Fence int64  // larger than that of every grant of this lock before
	TTL   time.Duration

	Since, Until, Now time.Time // by the Redis server, at the last reply

	sent time.Time     // the local time before the last confirmed request was sent
	good time.Duration // how long from then it is good; 0 = TTL
	// redislock's part of an exclusive lock; nil if another process obtained it
	held *redislock.Lock
	keys []string // of the lock with the name that it was granted under
}

func (g Grant) goodFor() time.Duration { return cmp.Or(g.good, g.TTL) }

// asker is a request under way.
type asker struct {
	Request

	name string
	keys []string
	sent time.Time       // before the newest attempt
	held *redislock.Lock // of the attempt that was granted

	own   bool // its token is of this request alone
	gated bool // it waits for its turn within the process: see gates
	// it may begin with a notification, before it has asked for its grant: see accept
	enters bool
	polls  int64 // the number of its newest poll
	waited poll  // the poll that was answered: wait
	// reports for how long its waiter has waited; nil = nobody wants to know
	heard func(time.Duration)
}

// poll is one question of a request to Redis.
type poll struct {
	number int64 // no two of a process have the same
	sent   time.Time
}

func (l *Locks) ask(name string, request Request) (*asker, error) {
	if request.Token != "" && !secret.Valid(request.Token) {
		return nil, errToken
	}
	known := request.Token != ""
	if request.KeepPlace && !known {
		return nil, fmt.Errorf("%w: a place is kept for a token", ErrInvalid)
	}
	request = request.withDefaults(l.config)
	if err := request.check(name, l.config.LongestTTL); err != nil {
		return nil, err
	}
	request.TTL = whole(request.TTL)
	gated := !known && !request.once && request.Mode == ModeExclusive
	return &asker{Request: request, name: name, keys: l.keys(name), own: !known, gated: gated}, nil
}

// enter asks once. With an inbox the request joins the queue.
func (l *Locks) enter(ctx context.Context, a *asker, inbox string) (scripts.Reply, error) {
	a.polls = l.polls.Add(1)
	args := []any{
		&a.Token, &a.Owner, a.Mode.letter(), a.TTL.Milliseconds(), (a.TTL + time.Minute).Milliseconds(), inbox,
		a.Take, a.capacity(), &l.settings, a.polls,
	}
	a.sent = time.Now()
	if a.Mode != ModeExclusive {
		return l.run(ctx, scripts.LockEnter, a.keys, args...)
	}
	chained := &pipeline.Chained{Script: scripts.LockEnter, Keys: a.keys, Args: args, Done: "granted"}
	held, err := l.client.Obtain(chained.With(ctx), a.keys[0], a.TTL, &redislock.Options{Token: a.Token, Metadata: a.Owner})
	if err != nil && (chained.Reply == nil || !errors.Is(err, redislock.ErrNotObtained)) {
		return nil, err
	}
	a.held = held
	return chained.Reply, nil
}

// enterInFull asks once. It waits for the answer even if the context ends meanwhile, for one
// timeout of the store at most. A request that is not waited for may arrive after the one that
// takes it back: see leftovers.
func (l *Locks) enterInFull(ctx context.Context, a *asker, inbox string) (scripts.Reply, error) {
	if ctx.Err() == nil {
		ctx = context.WithoutCancel(ctx)
	}
	return l.enter(ctx, a, inbox)
}

// granted returns the grant in a reply.
func (a *asker) granted(reply scripts.Reply) (Grant, error) {
	if reply.Word() != "granted" {
		return Grant{}, refusal(reply)
	}
	fence, err1 := reply.Number(0)
	since, err2 := reply.Number(1)
	ms, err3 := reply.Number(2)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Grant{}, err
	}
	now := time.UnixMilli(ms).UTC()
	return Grant{
		Name: a.name, Token: a.Token, Fence: fence, TTL: a.TTL, Since: time.UnixMilli(since).UTC(), Until: now.Add(a.TTL), Now: now,
		sent: a.sent, held: a.held, keys: a.keys,
	}, nil
}

// Grant waits for a lock and returns the grant as a value. The errors are those of Acquire.
func (l *Locks) Grant(ctx context.Context, name string, request Request) (Grant, error) {
	a, err := l.ask(name, request)
	if err != nil {
		return Grant{}, err
	}
	a.gated = false
	ended := l.waits(a)
	grant, err := l.grant(ctx, a)
	ended(err == nil)
	if err == nil {
		l.note(ctx, name, grant.TTL)
	}
	return grant, err
}

// TryGrant is Grant without waiting.
func (l *Locks) TryGrant(ctx context.Context, name string, request Request) (Grant, error) {
	request.once = true
	return l.Grant(ctx, name, request)
}

// grant asks Redis.
func (l *Locks) grant(ctx context.Context, a *asker) (Grant, error) {
	if !a.once && l.notifier.Channel() != "" {
		notified, forget := l.notifier.Expect(a.Token)
		defer forget()
		return l.waitInQueue(ctx, a, notified)
	}
	reply, err := l.enterInFull(ctx, a, "")
	if err != nil {
		l.unanswered(a)
		l.abandon(ctx, a, err)
		return Grant{}, err
	}
	if word := reply.Word(); a.once || (word != "held" && word != "doubt") {
		return a.granted(reply)
	}
	notified, forget := l.notifier.Expect(a.Token)
	defer forget()
	l.notifier.Listen(ctx)
	return l.waitInQueue(ctx, a, notified)
}

// Renew extends a grant's lease to one TTL from now and returns the renewed grant. Name and Token
// name the grant; Fence, if it is not 0, has to match; TTL 0 is DefaultTTL. ErrLost: the lease has
// ended, was released or broken, or is another holder's. An ended lease is never revived.
func (l *Locks) Renew(ctx context.Context, grant Grant) (Grant, error) {
	renewed, err := l.extend(ctx, grant)
	if err == nil {
		l.note(ctx, renewed.Name, renewed.TTL)
	}
	return renewed, err
}

// extend is Renew without the list of names.
func (l *Locks) extend(ctx context.Context, grant Grant) (Grant, error) {
	grant.TTL = cmp.Or(grant.TTL, min(DefaultTTL, l.config.LongestTTL))
	if !secret.Valid(grant.Token) {
		return Grant{}, errToken
	}
	if err := (Request{TTL: grant.TTL, Token: grant.Token}).withDefaults(l.config).check(grant.Name, l.config.LongestTTL); err != nil {
		return Grant{}, err
	}
	grant.TTL = whole(grant.TTL)
	grant.sent = time.Now()
	reply, err := l.renew(ctx, grant)
	if err != nil {
		return Grant{}, err
	}
	if reply.Word() != "ok" {
		return Grant{}, refusal(reply)
	}
	err = reply.Scan(&grant.Until, &grant.Now)
	return grant, err
}

func (l *Locks) renew(ctx context.Context, grant Grant) (scripts.Reply, error) {
	keys, fence := l.keys(grant.Name)[:5], ""
	if grant.Fence != 0 {
		fence = strconv.FormatInt(grant.Fence, 10)
	}
	args := []any{grant.Token, grant.TTL.Milliseconds(), fence}
	if grant.held == nil {
		return l.run(ctx, scripts.LockRenew, keys, args...)
	}
	chained := &pipeline.Chained{Script: scripts.LockRenew, Keys: keys, Args: args, Done: "ok"}
	err := grant.held.Refresh(chained.With(ctx), grant.TTL, nil)
	if chained.Reply != nil {
		return chained.Reply, nil
	}
	return nil, err
}

// Release gives a grant back; the lock goes to the next waiter, if there is one. ErrLost: the lease
// had ended before, was released, or is another holder's.
func (l *Locks) Release(ctx context.Context, grant Grant) error {
	free, err := l.giveLease(ctx, l.keys(grant.Name), grant.Token)
	if free {
		l.unlist(ctx, grant.Name)
	}
	if errors.Is(err, errPlace) {
		return nil
	}
	return err
}

// Discard is Release of a grant that no process has begun to use, such as one whose answer could
// not be delivered. If Redis does not answer, the lock is given back as soon as it does, within two
// minutes and before Close.
func (l *Locks) Discard(ctx context.Context, grant Grant) error {
	err := l.Release(ctx, grant)
	if away(err) && l.withdrawLater(grant.Name, l.keys(grant.Name), grant.Token, false) {
		return nil
	}
	return err
}

// errPlace means that a token had a place in the queue, and not the lock.
var errPlace = fmt.Errorf("%w: it was not held, and had a place in the queue", ErrLost)

// giveLease gives back a token's lock or its place in the queue, and notifies the waiters of this
// process that have got the lock. It reports whether the token was the only holder.
func (l *Locks) giveLease(ctx context.Context, keys []string, token string) (free bool, err error) {
	sent := time.Now()
	reply, err := l.run(ctx, scripts.LockLeave, keys, token, l.notifier.Channel(), &l.settings)
	if err != nil {
		return false, err
	}
	word := reply.Word()
	if word != "free" && word != "left" && word != "place" {
		return false, refusal(reply)
	}
	err = l.notifyWaiters(reply, sent)
	if err == nil && word == "place" {
		err = errPlace
	}
	return word == "free", err
}

// notifyWaiters notifies the waiters of this process that got the lock in the reply to its release.
// The release was sent at that time.
func (l *Locks) notifyWaiters(reply scripts.Reply, sent time.Time) error {
	heirs := reply.Values()
	if len(heirs) == 0 {
		return nil
	}
	now := time.Time{}
	if err := reply.Scan(&now); err != nil {
		return err
	}
	for i := 1; i+1 < len(heirs); i += 2 {
		fence, err := strconv.ParseInt(heirs[i+1], 10, 64)
		if err != nil {
			return reply.Unexpected()
		}
		l.notifier.Notify(heirs[i], notification{fence: fence, now: now, sent: sent})
	}
	return nil
}
