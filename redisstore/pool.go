package redisstore

import "time"

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
	p := s.engine.PoolStats()
	return PoolStats{
		Open: int(p.TotalConns), Idle: int(p.IdleConns), Pending: int(p.PendingRequests), Hits: p.Hits, Misses: p.Misses, Waits: p.WaitCount,
		Waited: time.Duration(p.WaitDurationNs), Timeouts: p.Timeouts, Stale: p.StaleConns,
	}
}
