// Package observe is the observers of a store of package redisstore, for metrics and traces.
package observe

import (
	"context"
	"time"
)

// Observer is what is called for what a store does, for metrics and traces; nil = nothing is. The
// goroutines that do the work call it, many at once: a function must be quick and must not call the
// store. It gets no key, no argument and no value.
type Observer struct {
	// CallStarted is called before a script or an INCRBY, which goes on with its context.
	CallStarted func(ctx context.Context, op string) context.Context
	// CallEnded is called once for each call that started, with the context that CallStarted
	// returned, or one made of that by a later observer. It is called without a CallStarted, and
	// with an empty context, for increments of package counter that go out together: once for all
	// of a batch that were added, and once for each that was not.
	CallEnded func(ctx context.Context, call Call)
	// BatchEnded is called after each round trip that carried calls.
	BatchEnded func(batch Batch)
	// IncarnationChanged is called when a server shows another incarnation than the last time that
	// it was asked: a failover, a restart, or a history that was renamed. An increment asks each
	// time, and what other calls depend on is asked for every ten seconds.
	IncarnationChanged func()
	// LockWaits is called when a request of package lock that may wait begins. It returns what is
	// called when the request has ended, once: with the lock or without. Before that, Redis may
	// have told for how long its waiter has waited by now: for longer than the request, if an
	// earlier one had the same token. Requests that do not wait and candidates of an election,
	// which wait by design, are not reported.
	LockWaits func() (waited func(time.Duration), ended func(granted bool))
}

// OpIncrBy is the op of an increment, a command of its own. All others are names of scripts.
const OpIncrBy = "incrby"

// Call is a script or an INCRBY that has ended.
type Call struct {
	Op   string // the name of the script's file without .lua, or [OpIncrBy]
	N    int    // how many calls; more than 1 only for increments of counters
	Took time.Duration
	// the script's outcome, one of those in its header; "" if it has not answered, and for OpIncrBy
	Word string
	Err  error // what the caller is told: an [*Error], or a sentinel of one of the three classes

	// how many calls shared its round trip, itself included; 0 = unknown, or it never left
	Together int
}

// Batch is a round trip to one server, and what it carried: calls that came during another.
type Batch struct {
	Calls int // scripts and increments
	Took  time.Duration
}
