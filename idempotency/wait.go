package idempotency

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

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

// beginOrWait is begin, and begin again while another attempt is running and patience lasts. At its
// end the error is still ErrInProgress.
func (t *Tokens) beginOrWait(ctx context.Context, key OperationKey, options ClaimOptions, patience time.Duration) (*run, Outcome, error) {
	run, outcome, err := t.begin(ctx, key, options)
	if patience <= 0 || !errors.Is(err, ErrInProgress) {
		return run, outcome, err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended, forget := t.notifier.Expect(t.store.Key("token", key.record))
	defer forget()
	t.notifier.Listen(waiting)
	options.awaited = true
	for {
		run, outcome, err = t.begin(ctx, key, options)
		if !errors.Is(err, ErrInProgress) {
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

// pollAfter is when a running attempt's lease can have ended, but not too soon and not too late.
func pollAfter(err error) time.Duration {
	return min(max(redisstore.RetryAfter(err), shortestPoll), longestPoll)
}
