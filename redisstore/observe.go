package redisstore

import (
	"context"
	"time"
)

// Observer is told what a store does, for metrics and traces. Its methods are called where the work
// is done, at once and by many goroutines: they must be quick and must not call the store. What
// they are told holds no key, no argument and no value. Embed [Unobserved] for the methods that an
// observer has no use for.
type Observer interface {
	// CallStarted is called before a script or an INCRBY goes out. The call goes on with the
	// context that it returns.
	CallStarted(ctx context.Context, op string) context.Context
	// CallEnded is called once for each CallStarted with the context that it returned, or one made
	// of that by a later observer. It is called without a CallStarted, and with a context that says
	// nothing, for the increments of riders ([Line.Ride]): once for all of a flight that were
	// added, and once for each that was not.
	CallEnded(ctx context.Context, call Call)
	// FlightEnded is called after each round trip that carried calls.
	FlightEnded(flight Flight)
	// LifeBegan is called when a connection has found another incarnation of a server than those
	// before it: a failover, or a restart without the last data.
	LifeBegan()
}

// OpIncrBy is the op of an increment, which is a command of its own. All others are names of
// scripts.
const OpIncrBy = "incrby"

// Call is a script or an INCRBY that has ended.
type Call struct {
	Op   string // the name of the script's file without .lua, or [OpIncrBy]
	N    int    // how many calls; more than 1 only for riders of one flight
	Took time.Duration
	// the outcome that a script has answered, of those that its header names; "" if it has not, and
	// for OpIncrBy
	Word string
	Err  error // what the caller is told: an [*Error], or a sentinel of one of the three classes

	// how many calls shared its round trip, itself among them; 0 = that is not known, since its
	// caller did not wait for it or it never left
	Together int
}

// Flight is a round trip to one server and what it carried. Calls that come while others are under
// way go together.
type Flight struct {
	Calls int // scripts and increments
	Took  time.Duration
}

// Unobserved is an [Observer] that does nothing.
type Unobserved struct{}

// CallStarted implements [Observer].
func (Unobserved) CallStarted(ctx context.Context, _ string) context.Context { return ctx }

// CallEnded implements [Observer].
func (Unobserved) CallEnded(context.Context, Call) {}

// FlightEnded implements [Observer].
func (Unobserved) FlightEnded(Flight) {}

// LifeBegan implements [Observer].
func (Unobserved) LifeBegan() {}

// observers are those of a store; none cost a comparison.
type observers []Observer

func (o observers) started(ctx context.Context, op string) context.Context {
	for _, each := range o {
		ctx = each.CallStarted(ctx, op)
	}
	return ctx
}

func (o observers) ended(ctx context.Context, call Call) {
	for _, each := range o {
		each.CallEnded(ctx, call)
	}
}

func (o observers) flew(calls int, took time.Duration) {
	for _, each := range o {
		each.FlightEnded(Flight{calls, took})
	}
}

func (o observers) lifeBegan() {
	for _, each := range o {
		each.LifeBegan()
	}
}

// PoolStats are the connections of a store to all of its servers. What counts only grows, until the
// servers of a cluster change; it begins again at 0 after 2^32.
type PoolStats struct {
	Open, Idle int    // connections now; those of subscriptions are not among them
	Pending    int    // calls that wait for a connection now
	Hits       uint32 // times that a connection was free
	Misses     uint32 // times that none was, so that one was made or waited for
	// times that one was waited for, since there were as many as there may be
	Waits    uint32
	Waited   time.Duration // for how long, all together
	Timeouts uint32        // times that one was waited for in vain
	Stale    uint32        // connections that were found broken or too old, and ended
}

// PoolStats tells of the store's connections. It asks no server, but in a cluster whose servers are
// not known yet.
func (s *Store) PoolStats() PoolStats {
	p := s.nodes.PoolStats()
	return PoolStats{
		Open: int(p.TotalConns), Idle: int(p.IdleConns), Pending: int(p.PendingRequests), Hits: p.Hits, Misses: p.Misses, Waits: p.WaitCount,
		Waited: time.Duration(p.WaitDurationNs), Timeouts: p.Timeouts, Stale: p.StaleConns,
	}
}
