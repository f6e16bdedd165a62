package pipeline

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// observers are those of a store; none cost a comparison.
type observers []observe.Observer

func (o observers) started(ctx context.Context, op string) context.Context {
	for _, each := range o {
		ctx = each.CallStarted(ctx, op)
	}
	return ctx
}

func (o observers) ended(ctx context.Context, call observe.Call) {
	for _, each := range o {
		each.CallEnded(ctx, call)
	}
}

func (o observers) batchSent(calls int, took time.Duration) {
	for _, each := range o {
		each.BatchEnded(observe.Batch{Calls: calls, Took: took})
	}
}

func (o observers) incarnationChanged() {
	for _, each := range o {
		each.IncarnationChanged()
	}
}
