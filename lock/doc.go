// Package lock locks names on Redis, for one holder, for many readers or for as many as there are
// permits, with a fence, a queue in order of arrival, and a holder who is told of a loss before
// anybody else can hold.
//
// What it promises:
//
//   - No two hold a name at once in modes that exclude each other, by the clock of the Redis
//     server, as long as Redis keeps what it has confirmed.
//   - The context of a [Lock] ends before the lease does, counted by this process alone from before
//     the last confirmed request was sent: it waits for no reply. What runs under that context, and
//     ends with it, runs never beside the next holder's, unless the process or its machine is
//     paused. A paused holder goes on and is told late; so the resource has the last word.
//   - Every grant of a name has a larger fence than all before it. A resource that keeps the
//     largest fence it has seen, and refuses smaller ones, is safe from every holder that was
//     overtaken, paused ones included: [CheckFence], [CheckFenceSQL].
//   - The same [Request].Token asked again gets the same grant and the same fence, so a reply that
//     was lost costs nothing.
//   - Who waits is served in the order of arrival, but that a process whose turn has come serves up
//     to sixteen more of its own before the next one's: see below. Readers that come while a writer
//     waits wait after it, and all readers that stand together are let in together.
//   - Nothing is left in Redis by a name that is used no more: its fence goes a minute after the
//     last lease or release, everything else with the lease or the last waiter.
//
// What it needs for that, and what happens without:
//
//   - Redis loses leases in a failover, a restart without its data, or FLUSHALL. With
//     redisstore.Config.Ack set to all replicas that can become master, a grant and a renewal count
//     only when those have it: then a failover loses none, and fences rise across it. With fewer it
//     rests on the replica with the latest data being promoted, as Sentinel and Redis Cluster do
//     when the master alone dies: the tests kill masters so with an acknowledgement of one of two
//     replicas. Without, two can hold until the first of them hears of it, a third of its TTL later
//     at most, and a fence can be smaller than one before if the new master's clock is behind the
//     old one's. [WaitAfterLoss] closes both, at the price of standing still for LongestTTL + Skew.
//   - A fence is the larger of the last one plus one and the server's time in microseconds. So it
//     rises also when its record was lost, as long as the server's clock is not behind what it was
//     at the last grant.
//   - Processes' clocks do not matter. A wall clock that is set forward while a lock is held looks
//     like a machine that has slept, and ends the lock.
//   - When Redis is away nothing is granted (redisstore.ErrUnavailable, at once), holders go on
//     until their deadline, and waiters go on waiting for a while.
//
// The lock of a name is a string in the format of github.com/bsm/redislock, which obtains and
// refreshes the exclusive ones: its plain clients on the same key ([Locks.Key]) and ours exclude
// each other, in all modes, as long as they do not choose a token that begins like another's. A
// plain client has no fence, does not queue and wakes no waiter: waiters look about once a second.
//
// Requests of one process for one name that are the same (exclusive, of one owner, with one TTL and
// no token of the caller's, by [Locks.Acquire]) stand in one line within the process, the first of
// which asks Redis. What is granted is handed on from one to the next of them up to sixteen times,
// without a request to Redis, and then given back. So no waiter of another process is overtaken by
// more than sixteen for each turn of a process before it. Each has a fence of its own: a grant has
// sixteen to itself after its own, and the next grant's is larger than all of them. A holder is
// told of his end before the next one holds, as everywhere. He who is handed a lock on counts on
// what is left of the lease, and renews it. It is not handed on when less than half of the lease is
// left, while a renewal is not confirmed, when it was lost as far as the process knows, or when its
// token was asked for ([Lock.Token]); then it goes by Redis. What Redis shows of the holder, his
// fence and since when, is that of the first of them until it is given back, and the first of those
// who wait is shown after a quarter of a second; any of their fences names the holder for
// [Locks.Break] and [Locks.Renew]. A Release that hands on asks no server, and so does not tell
// that the lock was lost, or broken, since the last renewal: the next holder then has a smaller
// fence than the next grant's, as the old holder has, and hears of it as he does.
//
// Else a lock goes from one to the next in one step: the release writes it in the next one's name
// and publishes one message to that process, with the fence. The next one has a claim window
// ([Config].Window) to ask for its grant. He who waits in [Locks.Acquire] begins at once, and asks
// if he still has it after 20 ms: until he has an answer he counts on the window alone, less a
// tenth, and from when he sent the question after which, as the message says, he was handed the
// lock; a Redis that does not answer takes the lock from him so much sooner. He asks first if half
// of that time is over already, if replicas are to confirm his grant (redisstore.Config.Ack), if
// [Config].Margin is more than a tenth of the window, or if he wants it so ([Request].WholeTTL). If
// it waits in the same process there is no message and nothing to ask: the reply to the release has
// its grant, with a fence of its own, counted from before the release was sent. Waiters also look
// by themselves, when the holder's lease can end and about once in a window, and any look moves the
// queue on: a lost message, or a process that died in the queue, holds no waiter up for longer than
// a window. Waiters whose process does not answer are set aside: they are passed over, and have
// their places again when they look within two minutes.
//
// [QuorumLocks] are exclusive locks that a majority of independent servers grants, without a queue:
// what they add and assume stands there.
package lock
