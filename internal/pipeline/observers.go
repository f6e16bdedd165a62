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
		if each.CallStarted != nil {
			ctx = each.CallStarted(ctx, op)
		}
	}
	return ctx
}

func (o observers) ended(ctx context.Context, call observe.Call) {
	for _, each := range o {
		if each.CallEnded != nil {
			each.CallEnded(ctx, call)
		}
	}
}

func (o observers) batchSent(calls int, took time.Duration) {
	for _, each := range o {
		if each.BatchEnded != nil {
			each.BatchEnded(observe.Batch{Calls: calls, Took: took})
		}
	}
}

// LockWaits reports to the store's observers that a request for a lock may wait from now on; ended
// has to be called once.
func (s *Engine) LockWaits() (waited func(time.Duration), ended func(granted bool)) {
	// of one observer they need no more memory
	tell, ends := make([]func(time.Duration), 0, 1), make([]func(bool), 0, 1)
	for _, each := range s.observers {
		if each.LockWaits == nil {
			continue
		}
		waited, ended := each.LockWaits()
		tell, ends = append(tell, waited), append(ends, ended)
	}
	waited = func(by time.Duration) {
		for _, one := range tell {
			one(by)
		}
	}
	return waited, func(granted bool) {
		for _, end := range ends {
			end(granted)
		}
	}
}

func (o observers) incarnationChanged() {
	for _, each := range o {
		if each.IncarnationChanged != nil {
			each.IncarnationChanged()
		}
	}
}
