package counter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// addOnce adds by the script, which knows requests, limits and ends.
func (c *Counters) addOnce(ctx context.Context, e *entry, request Request) (Range, error) {
	for range attempts {
		now, err := c.ready(ctx, e, need{request.By, request.TTL, request.Limit, request.AfterLoss})
		if err != nil {
			return Range{}, err
		}
		got, err := c.tryOnce(ctx, e, request, now)
		if !errors.Is(err, errNotInOrder) {
			return got, err
		}
		e.doubt()
	}
	return Range{}, errNotInOrder
}

func (c *Counters) tryOnce(ctx context.Context, e *entry, request Request, now state) (Range, error) {
	keys, retention := []string{c.key(e.key), c.recordKey(e.key), c.marker(e.key)}, time.Duration(0)
	if request.RequestID != "" {
		keys, retention = append(keys, c.requestKey(e.key, request.RequestID)), requestRetention
	}
	floor, limit := "", ""
	if now.seen {
		floor = strconv.FormatInt(now.floor, 10)
	}
	if request.Limit > 0 {
		limit = strconv.FormatInt(request.Limit, 10)
	}
	asked := clock()
	script := scripts.CounterIncr
	if retention == 0 && request.Limit == 0 && request.TTL == 0 {
		script = scripts.CounterBegin
	}
	ends := "begin"
	if request.GiveEnd {
		ends = "give"
	}
	reply, err := onstore.Run(ctx, c.store, script, keys, request.By, retention.Milliseconds(), floor, limit, now.era,
		request.TTL.Milliseconds(), ends)
	if err != nil {
		return Range{}, e.failed(ctx, err)
	}
	switch reply.Word() {
	case "ok", "again":
		var value, left, at int64
		if err := reply.Scan(&value, &left, &at); err != nil {
			return Range{}, err
		}
		if reply.Word() == "ok" {
			e.begun(at, left, asked)
		}
		if reply.Word() == "ok" && e.saw(value) {
			c.note(ctx, e.key)
		}
		return Range{value - request.By + 1, value}, nil
	case "behind":
		return Range{}, errNotInOrder
	case "permanent":
		var value int64
		if err := reply.Scan(&value); err != nil {
			return Range{}, err
		}
		return Range{}, &PermanentError{Key: e.key, Value: value, TTL: request.TTL}
	case "limit":
		return Range{}, limited(request.Limit)
	case "negative":
		return Range{}, fmt.Errorf("%w: 0 is the smallest, and the counter is below that", ErrLimit)
	case "not-an-integer":
		return Range{}, ErrNotAnInteger
	case "overflow":
		return Range{}, ErrOverflow
	case "mismatch":
		return Range{}, ErrOtherRequest
	}
	return Range{}, reply.Unexpected()
}

// begin is an addition without a TTL that begins the counter, or adds to one that another process
// has begun meanwhile: the script reports its end, so that this process knows it.
func (c *Counters) begin(ctx context.Context, e *entry, by int64, now state) (sum int64, err error) {
	got, err := c.tryOnce(ctx, e, Request{By: by}, now)
	return got.Last, err
}

// begun notes that the counter is there, and when it expires. A counter without an end may have got
// one since it was opened; what another end it got, a reply may be too late to tell.
func (e *entry) begun(now, left int64, asked time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.absent || e.ends == 0 && left >= 0 {
		e.absent = false
		e.endsLocked(now, left, asked)
	}
}

func limited(limit int64) error { return fmt.Errorf("%w: %d is the largest", ErrLimit, limit) }
