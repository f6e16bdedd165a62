package counter

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// MaxBy is the most that one call may add.
const MaxBy = 1_000_000

// requestRetention is how long a repeated request gets its first value.
const requestRetention = 24 * time.Hour

// What a counter can answer besides redisstore's own errors. All are refusals: nothing was changed.
var (
	ErrNotAnInteger = redisstore.Refusal("counter: the value is not a signed 64-bit integer")
	ErrOverflow     = redisstore.Refusal("counter: the value would overflow 64 bits")
	ErrBy           = redisstore.Refusal("counter: by is out of range")
	ErrOtherRequest = redisstore.Refusal("counter: the request id was used with another by")
	ErrUnknown      = redisstore.Refusal("counter: no such counter")
)

// Counters are the counters of one store. It is safe for concurrent use.
type Counters struct{ store *redisstore.Store }

// New returns the counters of a store.
func New(store *redisstore.Store) *Counters { return &Counters{store} }

// Range is what one call got: the caller owns First to Value, both included.
type Range struct{ First, Value int64 }

// Incr adds by, 1 to MaxBy, to a counter and returns the values that the caller now owns. A counter that was never used starts at 0, so its first value
// is 1. A request id, if not "", makes the call repeatable for a day. The key must hold no brace.
func (c *Counters) Incr(ctx context.Context, key string, by int64, requestID string) (Range, error) {
	if by < 1 || by > MaxBy {
		return Range{}, fmt.Errorf("%w: %d: 1 to %d", ErrBy, by, MaxBy)
	}
	keys, retention := []string{c.key(key)}, time.Duration(0)
	if requestID != "" { // a second key costs more than a look: while a cluster moves a slot, only calls of one key are served
		keys, retention = append(keys, c.requestKey(key, requestID)), requestRetention
	}
	reply, err := c.store.Run(ctx, scripts.CounterIncr, keys, by, retention.Milliseconds())
	if err != nil {
		return Range{}, err
	}
	switch reply.Word() {
	case "ok":
		var value int64
		err := reply.Scan(&value)
		return Range{First: value - by + 1, Value: value}, err
	case "not-an-integer":
		return Range{}, ErrNotAnInteger
	case "overflow":
		return Range{}, ErrOverflow
	case "mismatch":
		return Range{}, ErrOtherRequest
	}
	return Range{}, reply.Unexpected()
}

// Get reads a counter: the last value that was handed out, unless others are adding now. ErrUnknown if it was never used.
func (c *Counters) Get(ctx context.Context, key string) (int64, error) {
	reply, err := c.store.Run(ctx, scripts.CounterGet, []string{c.key(key)})
	if err != nil {
		return 0, err
	}
	switch reply.Word() {
	case "ok":
		var text string
		if err := reply.Scan(&text); err != nil {
			return 0, err
		}
		return parse(text)
	case "unknown":
		return 0, ErrUnknown
	case "not-an-integer":
		return 0, ErrNotAnInteger
	}
	return 0, reply.Unexpected()
}

// parse reads an integer as strictly as Redis does: no plus, no leading zero, no space.
func parse(text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(value, 10) != text {
		return 0, ErrNotAnInteger
	}
	return value, nil
}

func (c *Counters) key(key string) string { return c.store.Key("counter", key) }

// requestKey names the record of a request; the digest keeps clients' ids of any length out of Redis.
func (c *Counters) requestKey(key, requestID string) string {
	return c.store.Key("counter", key, "request", redisstore.Digest(requestID))
}
