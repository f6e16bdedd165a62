package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Said is the answer of one server of a quorum: yes, no, or an error.
type Said[T any] struct {
	Server int // its place among [Quorum.Stores]
	Value  T
	Yes    bool
	Err    error // it has not answered; then neither Value nor Yes counts
}

// Answers are the answers of a quorum's servers, in their order of arrival.
type Answers[T any] struct {
	Said   []Said[T]
	quorum *Quorum
}

// Ask asks all servers of a quorum at once, and returns their answers as soon as these decide: a
// majority has said yes; or it cannot any more, and either a majority has answered or that cannot
// be either. So a minority that is away or slow delays no caller, and a no comes with its reasons.
// When ctx ends it returns the answers so far; if ctx has already ended, it asks no server.
//
// Late calls go on, up to patience, as those of [Quorum.Each] do, and their answers are ignored.
func Ask[T any](ctx context.Context, q *Quorum, patience time.Duration, ask func(ctx context.Context, i int) (value T, yes bool, err error)) Answers[T] {
	heard := Answers[T]{quorum: q}
	if err := ctx.Err(); err != nil {
		heard.none(err)
		return heard
	}
	said := make(chan Said[T], len(q.stores))
	started := q.Each(ctx, patience, func(ctx context.Context, i int) {
		value, yes, err := ask(ctx, i)
		said <- Said[T]{i, value, yes && err == nil, err}
	})
	if !started {
		heard.none(redisstore.ErrClosed)
	}
	for !heard.Votes().decided() {
		select {
		case one := <-said:
			heard.Said = append(heard.Said, one)
		case <-ctx.Done():
			return heard
		}
	}
	return heard
}

// none notes that no server was asked.
func (a *Answers[T]) none(cause error) {
	for i := range a.quorum.stores {
		a.Said = append(a.Said, Said[T]{Server: i, Err: &redisstore.Error{Op: "quorum", Class: redisstore.ErrUnavailable, Cause: cause}})
	}
}

// Votes counts the answers of a quorum's servers.
type Votes struct {
	Yes, No int
	Silent  int // have not answered, and will not
	Of      int // servers
}

// Votes counts the answers.
func (a Answers[T]) Votes() Votes {
	votes := Votes{Of: len(a.quorum.stores)}
	for _, one := range a.Said {
		switch {
		case one.Err != nil:
			votes.Silent++
		case one.Yes:
			votes.Yes++
		default:
			votes.No++
		}
	}
	return votes
}

// Carried reports whether a majority has said yes.
func (v Votes) Carried() bool { return v.Yes > v.Of/2 }

// Rejected reports whether a majority has said no.
func (v Votes) Rejected() bool { return v.No > v.Of/2 }

// Answered reports whether a majority has said yes or no.
func (v Votes) Answered() bool { return v.Yes+v.No > v.Of/2 }

// decided reports whether nothing that is still to come matters.
func (v Votes) decided() bool {
	pending := v.Of - v.Yes - v.No - v.Silent
	switch {
	case v.Carried(), pending == 0:
		return true
	case v.Yes+pending > v.Of/2:
		return false // it can still be carried
	}
	return v.Answered() || v.Yes+v.No+pending <= v.Of/2
}

// Silence is the error for a question that too few servers have answered. It quotes their errors
// and is none of them, but for the end of a context: a refusal or an unknown outcome of one server
// need not be that of the quorum. Its class is redisstore.ErrUnavailable if no server can have done
// anything, else redisstore.ErrUnknownOutcome.
func (a Answers[T]) Silence(ctx context.Context, op string) *redisstore.Error {
	class, ended := redisstore.ErrUnavailable, ctx.Err()
	if len(a.Said) < len(a.quorum.stores) {
		class = redisstore.ErrUnknownOutcome
	}
	var quotes []string
	for _, one := range a.Said {
		if one.Yes || one.Err != nil && !errors.Is(one.Err, redisstore.ErrRefused) {
			class = redisstore.ErrUnknownOutcome
		}
		if one.Err != nil {
			quotes = append(quotes, fmt.Sprintf("%s: %v", a.quorum.stores[one.Server].Address(), one.Err))
		}
		if ended == nil && errors.Is(one.Err, context.DeadlineExceeded) {
			ended = context.DeadlineExceeded
		}
	}
	votes := a.Votes()
	cause := fmt.Errorf("%d of %d servers have answered; %s", votes.Yes+votes.No, votes.Of, strings.Join(quotes, "; "))
	if ended != nil {
		cause = fmt.Errorf("%w (%w)", cause, ended)
	}
	return &redisstore.Error{Op: op, Class: class, Cause: cause}
}
