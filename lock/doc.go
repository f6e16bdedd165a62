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
//   - Waiters are served in the order of arrival, except for handing on within a process: see
//     below. Readers that come while a writer waits wait after it, and all readers that are next to
//     each other in the queue are let in together.
//   - A name that is not used any more leaves nothing in Redis: its fence is removed a minute after
//     the last lease or release, everything else with the lease or the last waiter.
//
// # Requirements
//
//   - Redis loses leases in a failover, a restart without its data, or FLUSHALL. What survives
//     depends on redisstore.Config.Ack and [WaitAfterLoss]: docs/guarantees.md has a table, the
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
// # Queue
//
// A release writes the lock in the name of the next waiter and publishes one message to its
// process, with the fence. The next waiter has a claim window ([Config].Window) to ask for its
// grant. In [Locks.Acquire] it begins at once, and asks if it still has the lock after 20 ms. Until
// it has an answer it counts on the window alone, less a tenth, from when it sent the poll that the
// message names, which Redis answered before the handover. If Redis does not answer, it loses the
// lock that much sooner. It asks first if half of that time is over already, if replicas are to
// confirm its grant (redisstore.Config.Ack), if [Config].Margin is more than a tenth of the window,
// or if [Request].WholeTTL is set.
//
// If the next waiter is in the same process there is no message and no claim: the reply to the
// release has its grant, with a fence of its own, counted from before the release was sent.
//
// Waiters also poll, when the holder's lease can end and about once in a window, and any poll
// advances the queue: a lost message, or a process that died in the queue, delays a waiter by a
// window at most. Waiters whose process does not answer are passed over, and have their places
// again if they poll within two minutes.
//
// # Handing on within a process
//
// Requests of one process for one name that are the same (exclusive, of one owner, with one TTL and
// no token of the caller's, by [Locks.Acquire]) wait in one local queue, the first of which asks
// Redis. A granted lock is handed on from one to the next of them up to sixteen times, without a
// request to Redis, and then given back. So a process that has its turn overtakes the waiters of
// other processes with at most sixteen of its own. A holder's context ends before the next one
// holds, as everywhere.
//
//   - Each holder has a fence of its own: a grant has sixteen to itself after its own, and the next
//     grant's is larger than all of them.
//   - The next holder counts on the remaining lease, and renews it.
//   - A lock is not handed on, but given back, when less than half of the lease remains, while a
//     renewal is not confirmed, when its loss is known, or when its token was read ([Lock.Token]).
//   - Redis shows the owner, fence and start of the first of the holders until the lock is given
//     back, and the first local waiter after a quarter of a second. [Locks.Break] takes the fence
//     that is shown, and its new fence is larger than all of theirs.
//   - A Release that hands on sends no request, and so does not report that the lock was lost, or
//     broken, since the last renewal. The next holder then has a smaller fence than the next
//     grant's, as the old holder has, and learns of the loss in the same way.
//
// [QuorumLocks] are exclusive locks that a majority of independent servers grants, without a queue:
// their additional promises and requirements are in their own documentation.
package lock
