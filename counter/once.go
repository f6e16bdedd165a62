package counter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// addOnce adds by the script, which knows requests and limits. Such calls are not merged with others.
func (c *Counters) addOnce(ctx context.Context, e *entry, request Request) (Range, error) {
	for range attempts {
		now, err := c.ready(ctx, e, request.TTL)
		if err != nil {
			return Range{}, err
		}
		got, err := c.tryOnce(ctx, e, request, now)
		if err == nil || !errors.Is(err, errNotInOrder) {
			return got, err
		}
		e.doubt()
	}
	return Range{}, fmt.Errorf("%w: counter: not found in order in %d attempts; ask again", redisstore.ErrUnavailable, attempts)
}

var errNotInOrder = errors.New("counter: not in order")

func (c *Counters) tryOnce(ctx context.Context, e *entry, request Request, now state) (Range, error) {
	keys, retention := []string{c.key(e.key)}, time.Duration(0)
	if request.RequestID != "" { // a second key costs more than a look: while a cluster moves a slot, only calls of one key are served
		keys, retention = append(keys, c.requestKey(e.key, request.RequestID)), requestRetention
	}
	floor, limit := "", ""
	if now.seen {
		floor = strconv.FormatInt(now.floor, 10)
	}
	if request.Limit > 0 {
		limit = strconv.FormatInt(request.Limit, 10)
	}
	reply, in, err := c.store.RunFor(ctx, scripts.CounterIncr, keys, request.By, retention.Milliseconds(), floor, limit)
	if err != nil {
		return Range{}, e.failed(err)
	}
	switch reply.Word() {
	case "ok", "again":
		if in != now.life {
			return Range{}, c.otherLife(e, request)
		}
		var value int64
		if err := reply.Scan(&value); err != nil {
			return Range{}, err
		}
		if reply.Word() == "ok" {
			e.saw(value)
		}
		return Range{value - request.By + 1, value}, nil
	case "behind":
		return Range{}, errNotInOrder
	case "limit":
		return Range{}, fmt.Errorf("%w: %d", ErrLimit, request.Limit)
	case "not-an-integer":
		return Range{}, ErrNotAnInteger
	case "overflow":
		return Range{}, ErrOverflow
	case "mismatch":
		return Range{}, ErrOtherRequest
	}
	return Range{}, reply.Unexpected()
}

// otherLife is for an answer that came from another incarnation than the one in which the counter was found in order: its value can have been handed out before. With a
// request id the value is recorded, so it is not asked again here.
func (c *Counters) otherLife(e *entry, request Request) error {
	e.doubt()
	if request.RequestID == "" {
		return errNotInOrder
	}
	return fmt.Errorf("counter: %w: another incarnation of the server answered", redisstore.ErrUnknownOutcome)
}
