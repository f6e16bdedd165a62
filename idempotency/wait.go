package idempotency

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/pipeline"
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
	enough := time.After(patience)
	ended, forget := t.notifier.expect(t, t.store.Key("token", key.record))
	defer forget()
	options.awaited = true
	for {
		run, outcome, err = t.begin(ctx, key, options)
		if !errors.Is(err, ErrInProgress) {
			return run, outcome, err
		}
		select {
		case <-ctx.Done(): // the client has hung up, or the request's time is over
			return run, outcome, err
		case <-enough:
			return run, outcome, err
		case <-ended:
		case <-time.After(pollAfter(err)):
		}
	}
}

// pollAfter is when a running attempt's lease can have ended, but not too soon and not too late.
func pollAfter(err error) time.Duration {
	busy, _ := errors.AsType[*InProgressError](err)
	return min(max(busy.Left, shortestPoll), longestPoll)
}

// notifier wakes the requests of this process that wait for an attempt's end. They share one
// subscription, which the first of them opens and which stays. The zero value is ready; close it at
// the end.
type notifier struct {
	mu        sync.Mutex
	by        map[string]map[chan struct{}]bool // by record
	listening bool
	ended     bool
	cancel    context.CancelFunc // ends the subscription
	reader    sync.WaitGroup
}

// expect returns a channel that is sent to when the record's attempt has ended, or may have; forget
// ends the wait. Without a subscription, since Redis is away, nothing is sent.
func (w *notifier) expect(t *Tokens, record string) (ended <-chan struct{}, forget func()) {
	told := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]map[chan struct{}]bool{}
	}
	if w.by[record] == nil {
		w.by[record] = map[chan struct{}]bool{}
	}
	w.by[record][told] = true
	w.listenLocked(t)
	return told, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.by[record], told); len(w.by[record]) == 0 {
			delete(w.by, record)
		}
	}
}

// listenLocked opens the subscription if there is none.
func (w *notifier) listenLocked(t *Tokens) {
	if w.listening || w.ended {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.listening, w.cancel = true, cancel
	w.reader.Go(func() {
		if err := w.listen(ctx, t); err != nil && ctx.Err() == nil {
			t.log.Warn("idempotency: waiting requests poll every few seconds, since the subscription failed", "error", err)
		}
		w.mu.Lock()
		w.listening = false
		w.mu.Unlock()
	})
}

// listen passes on what is published until the context ends. What was published before, or while
// the connection was lost, is lost: then all requests poll.
func (w *notifier) listen(ctx context.Context, t *Tokens) error {
	inbox, err := pipeline.Of(t.store).Subscribe(ctx, t.done)
	if err != nil {
		return err
	}
	w.notify("", true)
	for {
		record, missed, err := inbox.Next(ctx)
		if err != nil {
			return errors.Join(err, inbox.Close())
		}
		w.notify(record, missed)
	}
}

// notify wakes the requests that wait for a record, or all of them.
func (w *notifier) notify(record string, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, waiting := range w.by {
		if name != record && !all {
			continue
		}
		for told := range waiting {
			select {
			case told <- struct{}{}:
			default: // it was notified and has not polled yet
			}
		}
	}
}

// close ends the subscription.
func (w *notifier) close() {
	w.mu.Lock()
	w.ended = true
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.reader.Wait()
}
