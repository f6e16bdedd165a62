package pipeline

import (
	"cmp"
	"context"

	"golang.org/x/sync/errgroup"
)

// together is how many calls of one page are under way at once. They share round trips; other calls
// wait for that many at most.
const together = 64

// Together calls f for each number below n, some at a time, and returns the first error, after
// which it begins no more calls. It is for a page of a list, whose values are each a call.
func Together(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, calls := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for i := 0; i < n && calls.Err() == nil; i++ {
		group.Go(func() error { return f(calls, i) })
	}
	return cmp.Or(group.Wait(), ctx.Err())
}
