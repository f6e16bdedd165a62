// Package workerlease leases small integers, worker ids, to processes: each to one process at a time, for a window of time.
//
// What holds while Redis keeps what it has confirmed:
//
//   - No worker id of a pool is granted while another lease of it is open by the Redis server's clock. Leases go round the ring: a slot that was never used
//     first, then the one that has been free longest.
//   - Only the lease that a token names can be renewed or released with it; an ended lease is never revived, even if nobody took its slot.
//   - Each grant of a pool has a larger fence than all before it.
//   - Layout and epoch of a pool are fixed by its first grant; a request for others is refused.
//   - A repeated acquire with the same nonce gets the same grant, so that a lost reply costs nothing.
//
// A holder must stop by itself when its window ends: NotAfter counts from the moment before the grant or renewal was asked for, plus the TTL, on the holder's own
// monotonic clock. A holder that was paused past its window and goes on is not stopped by anything here; ids are safe from that when the generator checks
// the timestamp inside each id against the window.
//
// What does not hold yet: if Redis loses grants that it confirmed (failover without acknowledgement, restart without data, FLUSHALL), an id that is still in
// use can be granted again. Each grant notes the server's incarnation in the pool, from which a loss can be told; nothing is held back for it so far.
package workerlease
