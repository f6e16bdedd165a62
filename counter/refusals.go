package counter

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// refusals logs which counters are refused until somebody sets them: the first call at once, then
// one of them a minute. The zero value is ready.
type refusals struct{ calls, next atomic.Int64 } // calls since the last line; when the next may be

func (r *refusals) log(ctx context.Context, log *slog.Logger, err error, now time.Duration) {
	behind, is := errors.AsType[*BehindError](err)
	if !is {
		return
	}
	r.calls.Add(1)
	next := r.next.Load()
	if int64(now) < next || !r.next.CompareAndSwap(next, int64(now+time.Minute)) {
		return
	}
	log.WarnContext(ctx, "a counter is refused until somebody sets it past what was handed out",
		slog.String("kind", behind.Kind), slog.String("key", behind.Key), slog.Int64("last", max(behind.Value, behind.Seen)),
		slog.Int64("limit", behind.Limit), slog.String("why", fault.Why(behind.Why).Happened(behind.Noticed)),
		slog.Int64("calls", r.calls.Swap(0)), slog.String("try", "coatcheck "+behind.Kind+" set KEY VALUE"))
}
