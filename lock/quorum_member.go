package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// member is an attempt at one server of a quorum. Its calls run one at a time, so that a release
// does not overtake the request that it releases.
type member struct {
	locks *Locks
	asker *asker
	over  *atomic.Bool  // the attempt is being given back: nothing is asked for any more
	turn  chan struct{} // holds one element while a call runs; guards what follows

	has     possession
	missing bool // the last renewal found nothing
	listed  bool // the name may be on the server's list
}

// possession is what a token has at one server, as far as this process knows.
type possession int

const (
	nothing possession = iota
	perhaps            // a request was sent, and may have arrived or may still arrive
	something
)

// errOver means that the attempt was over before a call could run. Nothing was sent.
var errOver = &redisstore.Error{Op: "lock", Class: redisstore.ErrUnavailable, Cause: errors.New("it is being given back")}

// errMayArrive means that a server has nothing of a token now.
var errMayArrive = fmt.Errorf("%w: a request that was not answered may still arrive", redisstore.ErrUnknownOutcome)

func newMember(locks *Locks, name string, request Request, over *atomic.Bool) *member {
	return &member{locks: locks, asker: &asker{Request: request, name: name, keys: locks.keys(name)}, over: over, turn: make(chan struct{}, 1)}
}

// take waits for the call's turn; without an error, end ends it.
func (l *member) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &redisstore.Error{Op: "lock", Class: redisstore.ErrUnavailable, Cause: ctx.Err()}
	}
}

func (l *member) end() { <-l.turn }

// enter asks for the lock. After an error of another class than refused it may have been granted.
func (l *member) enter(ctx context.Context) (Grant, error) {
	if err := l.take(ctx); err != nil {
		return Grant{}, err
	}
	defer l.end()
	if l.over.Load() {
		return Grant{}, errOver
	}
	return l.enterInTurn(ctx)
}

func (l *member) enterInTurn(ctx context.Context) (Grant, error) {
	reply, err := l.locks.enter(ctx, l.asker, "")
	var grant Grant
	if err == nil {
		grant, err = l.asker.granted(reply)
	}
	switch {
	case err == nil:
		l.has = something
	case unknown(err) && l.has == nothing:
		l.has = perhaps
	}
	return grant, err
}

// raise renews the lock and raises its fence, and reports whether the server has it.
func (l *member) raise(ctx context.Context, fence int64) (bool, error) {
	if err := l.take(ctx); err != nil {
		return false, err
	}
	defer l.end()
	if l.over.Load() {
		return false, errOver
	}
	reply, err := l.locks.run(ctx, scripts.LockRaise, l.asker.keys[:2], l.asker.Token, fence, l.asker.TTL.Milliseconds())
	if err != nil {
		return false, err
	}
	switch reply.Word() {
	case "ok":
		l.has, l.missing = something, false
		return true, nil
	case "lost":
		l.missing = true
		return false, nil
	}
	return false, reply.Unexpected()
}

// tend acquires the lock if it is missing; otherwise it puts the name on the list. After a failure
// it is tried again with the next renewal.
func (l *member) tend(ctx context.Context) {
	if err := l.take(ctx); err != nil {
		return
	}
	defer l.end()
	switch {
	case l.over.Load():
	case l.missing:
		_, _ = l.enterInTurn(ctx) // the next renewal finds out
	default:
		l.listed = true
		l.locks.note(ctx, l.asker.name, l.asker.TTL)
	}
}

// leave gives back what the token has, and reports whether it had something. Without an error it
// has nothing any more.
func (l *member) leave(ctx context.Context) (had bool, err error) {
	if err := l.take(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", errMayArrive, ctx.Err())
	}
	defer l.end()
	if l.has == nothing {
		return false, nil
	}
	_, err = l.locks.giveLease(ctx, l.asker.keys, l.asker.Token)
	lost := errors.Is(err, ErrLost)
	if lost && l.has == perhaps {
		return false, errMayArrive
	}
	if err != nil && !lost {
		return false, err
	}
	l.has = nothing
	if l.listed {
		l.locks.note(ctx, l.asker.name, 0)
	}
	return err == nil, nil
}
