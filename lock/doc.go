// Package lock locks names on Redis: for one holder, for many readers or for as many as there are
// permits. It has fences, a queue in order of arrival, and a context that ends before another
// holder can have the lock.
//
// # Promises
//
//   - In modes that exclude each other a name has one holder at a time, by the clock of the Redis
//     server, as long as Redis keeps what it has confirmed.
//   - The context of a [Lock] ends before its lease does. The process counts from before it sent
//     the last confirmed request and waits for no reply. Work that runs under that context, and
//     ends with it, never runs beside the next holder's, unless the process or its machine is
//     paused. A paused holder learns of its loss late; so the resource has the last word.
//   - Every grant of a name has a larger fence than all earlier ones. A resource that keeps the
//     largest fence it has seen, and refuses smaller ones, is safe from every holder that was
//     overtaken, paused ones included: [CheckFence], [CheckFenceSQL].
//   - The same [Request].Token asked again gets the same grant and the same fence, so a lost reply
//     costs nothing.
//   - Waiters are served in the order in which they ask Redis; of a process's requests for an
//     exclusive lock one at a time asks: see [Locks]. Readers that come while a writer waits wait
//     after it, and all readers that are next to each other in the queue are let in together.
//   - A name that is not used any more leaves nothing in Redis: its fence is removed a minute after
//     the last lease or release, everything else with the lease or the last waiter.
//
// # Requirements
//
//   - Redis loses leases in a failover, a restart without its data, or FLUSHALL. What survives
//     depends on redisstore.Config.Ack and [AfterLossWait]: docs/guarantees.md has a table, the
//     assumptions and the argument. Where leases are lost, two can hold until the first of them
//     learns of it, a third of its TTL later at most.
//   - Fences rise also when their record was lost, as long as the server's clock is not earlier
//     than at the last grant: they follow its time in microseconds.
//   - Processes' clocks do not matter. A wall clock that is set forward while a lock is held looks
//     like a machine that has slept, and ends the lock.
//   - When Redis is away nothing is granted (redisstore.ErrUnavailable, at once), holders go on
//     until their deadline, and waiters go on waiting for a while.
//
// # Key format
//
// The lock of a name is a string in the format of github.com/bsm/redislock, which obtains and
// refreshes the exclusive ones. Its plain clients on the same key ([Locks.Key]) and this package
// exclude each other, in all modes, as long as they do not choose a token that begins like
// another's. A plain client has no fence, does not queue and wakes no waiter: waiters poll about
// once a second.
//
// # States
//
// The states of a request in [Locks.Acquire], and of its lock:
//
//	           queued                      granted
//	Acquire ------------> waiting ----------------------> held <-- renewed --+
//	   |                   |   |                            | \______________|
//	   |                   |   | notification               |
//	   |                   |   +----------> claim window ---+
//	   |                   |                 |  answered: held for its TTL
//	   |                   |                 |  not answered: lost, the next waiter's turn
//	   |                   |
//	   |                   +-- Wait or context over --> refused, *HeldError
//	   +-- free: granted at once --> held
//
//	held -- Release ------------------------> ErrReleased; the next waiter is served
//	held -- not confirmed in time ----------> ErrLost, ErrDeadline
//	held -- broken, expired, other holder --> ErrLost, at the next renewal
//
// [Locks] has the queue, and the gate within a process.
package lock
