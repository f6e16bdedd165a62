package idempotency

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// giveBack releases a claim whose outcome is not known and whose handler never ran. A hung Redis may execute the claim after the release, so "not
// there" is not the end of it: it goes on until the claim is given back or its lease must have lapsed. If it can not, the token ends in doubt.
func (t *Tokens) giveBack(ref Ref, owner string, lease time.Duration) {
	t.later.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 2*lease)
		defer cancel()
		retry(ctx, func() bool { return t.Release(ctx, ref, owner) == nil })
	})
}

// completeLater tries on to record an answer that the client has already been sent.
func (t *Tokens) completeLater(ref Ref, owner string, answer Answer, retention time.Duration) {
	t.later.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, retention)
		defer cancel()
		retry(ctx, func() bool {
			err := t.Complete(ctx, ref, owner, answer, retention)
			return err == nil || errors.Is(err, redisstore.ErrLost) || errors.Is(err, ErrUnknownToken)
		})
	})
}

// retry calls try until it says that it is done or the context ends, at first after a tenth of a second, then less and less often up to every 2 s.
func retry(ctx context.Context, try func() bool) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if try() {
			return
		}
	}
}

// background runs what outlives its request: recording an answer while Redis is away, giving an uncertain claim back.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	n      int
	closed bool
}

// most bounds the jobs that wait for a Redis that is away. One more is not started: its token is in doubt when the lease lapses, which is true.
const most = 1000

// start runs a job unless there are too many or the tokens are closed; its context ends when the tokens are closed for good.
func (b *background) start(job func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.n >= most {
		return
	}
	b.n++
	b.wg.Go(func() {
		job(b.ctx)
		b.mu.Lock()
		b.n--
		b.mu.Unlock()
	})
}

func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.cancel()
	<-done
	return err
}
