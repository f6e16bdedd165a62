package idempotency

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Waiting for a running attempt: a request with Prefer: wait=n (RFC 7240) waits for the attempt's
// end instead of getting "in progress". Redis is asked again when the attempt's end was published,
// when its lease can have ended, and every few seconds in case the message was lost.
const (
	shortestPoll = 50 * time.Millisecond
	longestPoll  = 2 * time.Second
)

// patience is how long a request wants to wait for a running attempt, up to the route's limit. An
// unreadable preference is none.
func (r Route) patience(request *http.Request) time.Duration {
	for _, field := range request.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(field, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0
			}
			return min(time.Duration(seconds)*time.Second, max(r.MaxWait, 0))
		}
	}
	return 0
}

// beginOrWait is begin, and begin again while patience lasts and another attempt is running, or a
// resolver finds out what became of it. At its end the error is still ErrInProgress or ErrInDoubt.
func (t *Tokens) beginOrWait(ctx context.Context, key Key, options ClaimOptions, patience time.Duration) (*run, Outcome, error) {
	run, outcome, err := t.beginOrAsk(ctx, key, options)
	if patience <= 0 || !passes(err) {
		return run, outcome, err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended, forget := t.notifier.Expect(onstore.Key(t.store, "token", key.record))
	defer forget()
	t.notifier.Listen(waiting)
	options.awaited = true
	for {
		run, outcome, err = t.beginOrAsk(ctx, key, options)
		if !passes(err) {
			return run, outcome, err
		}
		select {
		case <-waiting.Done(): // patience is over, or the client has hung up
			return run, outcome, err
		case <-ended:
		case <-time.After(pollAfter(err)):
		}
	}
}

// beginOrAsk is begin, and has a resolver asked if the operation is in doubt. Then the error says
// when to ask again.
func (t *Tokens) beginOrAsk(ctx context.Context, key Key, options ClaimOptions) (*run, Outcome, error) {
	run, outcome, err := t.begin(ctx, key, options)
	if doubt, is := errors.AsType[*InDoubtError](err); is && !doubt.Refused && options.Resolve != nil {
		t.asker.ask(cmp.Or(options.Route, key.Scope), options.Resolve, key.record)
		err = &fault.WaitError{Err: err, Wait: time.Second}
	}
	return run, outcome, err
}

// passes reports whether a refusal ends by itself: an attempt that runs, or a doubt about which
// somebody is asked.
func passes(err error) bool {
	return errors.Is(err, ErrInProgress) || errors.Is(err, ErrInDoubt) && redisstore.RetryAfter(err) > 0
}

// pollAfter is when a running attempt's lease can have ended, but not too soon and not too late.
func pollAfter(err error) time.Duration {
	return min(max(redisstore.RetryAfter(err), shortestPoll), longestPoll)
}
