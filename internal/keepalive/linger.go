package keepalive

import (
	"context"
	"math"
	"time"
)

// Parting is how long a call that gives something back goes on when its context has ended: most
// programs close with the context whose end has stopped them.
const Parting = 2 * time.Second

// Linger returns a context that ends only some time after ctx.
func Linger(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(math.MaxInt64, end)
	stop := context.AfterFunc(ctx, func() { timer.Reset(grace) })
	return late, func() {
		stop()
		timer.Stop()
		end()
	}
}
