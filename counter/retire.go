package counter

import (
	"context"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Retire ends a counter, so that its numbers can go on elsewhere, and returns the last value that
// was handed out, by this process or any other. From then on every addition gets ErrOverflow. It
// can be repeated after an unknown outcome. [Counters.Set] takes it back. Where state may have been
// lost, one value is added first, to put the counter in order: a gap.
func (c *Counters) Retire(ctx context.Context, key string) (last int64, err error) {
	if _, err := c.Get(ctx, key); err != nil {
		return 0, err
	}
	keys := []string{c.key(key), c.recordKey(key), c.marker(key), onstore.Key(c.store, c.config.Kind, key, "last")}
	for range attempts {
		reply, err := onstore.Run(ctx, c.store, scripts.CounterRetire, keys)
		if err != nil {
			return 0, err
		}
		switch reply.Word() {
		case "ok":
			err := reply.Scan(&last)
			return last, err
		case "unknown":
			return 0, ErrNotFound
		case "not-an-integer":
			return 0, ErrNotAnInteger
		case "not-in-order":
			c.entry(key).doubt()
			if _, err := c.Incr(ctx, key); err != nil {
				return 0, err
			}
		default:
			return 0, reply.Unexpected()
		}
	}
	return 0, errNotInOrder
}
