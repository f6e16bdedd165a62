// Package workerlease leases small integers, worker ids, to processes: each for a window of id
// timestamps, and no two windows of one worker id overlap.
//
// The promises, under assumptions that docs/guarantees.md states and argues for:
//
//   - A timestamp that lies in the window of one grant of a worker id lies in no other's. So ids
//     that hold a timestamp and a worker id, and are stamped only within the window, are never
//     equal: not through clocks that are wrong or jump, pauses, restarts, lost replies,
//     wrap-around, failover, a Redis that comes back empty, or FLUSHALL.
//   - Leases go round the ring: a slot that was never used first, then the one that has been free
//     longest. A holder that names itself gets its last worker id again, once its window has ended.
//   - Only the lease that a token names can be renewed or released with it; an ended lease is never
//     revived, even if its slot is still free.
//   - Each grant of a pool has a larger fence than all before it.
//   - Layout, epoch, datacenter and TTL of a pool are fixed by its first grant; a request for
//     others is refused.
//   - A repeated acquire with the same nonce gets the same grant, so that a lost reply costs
//     nothing.
//
// When Redis may have lost state (another incarnation, a part or the whole of a pool missing),
// nothing is granted until every window that may be open has ended: the longest TTL that the
// settings allow ([Config].LongestTTL) and the skew of the servers' clocks. Holders go on
// meanwhile: a renewal with proof of its window writes it down anew. An unknown pool is one that
// may be lost, unless it is declared new, with [Pools.Create] or by [NewPoolsTrust].
//
// It needs three things: every server that can become master has all confirmed writes (Request.Ack
// as many as there are replicas), the clocks of those servers differ by at most [Config].Skew, and
// all clients of a pool have one configuration. Clients' clocks do not matter.
//
// A [Holder] keeps a lease alive, stops counting on it by its own clock when no renewal was
// confirmed in time, and is what package snowflake stamps with. A program that uses a worker id for
// anything else than the timestamps of its window must stop by itself when the holder's context
// ends; a process that is paused then goes on without knowing.
package workerlease
