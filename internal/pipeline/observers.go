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

// LockWaits reports to the store's observers that a request for a lock may wait from now on; ended
// has to be called once.
func (s *Engine) LockWaits() (ended func(granted bool)) {
	ends := make([]func(bool), 0, 1) // of one observer it needs no memory
	for _, each := range s.observers {
		ends = append(ends, each.LockWaits())
	}
	return func(granted bool) {
		for _, end := range ends {
			end(granted)
		}
	}
}

func (o observers) incarnationChanged() {
	for _, each := range o {
		each.IncarnationChanged()
	}
}
