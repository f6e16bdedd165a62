// Package locks has processes take and give back the locks of package lock while processes, links
// and Redis are broken, writes down who believed when to hold what, and has the histories checked
// by porcupine.
//
// Each process is a real one of its own with several clients, on a real Redis (a master, two
// replicas, three sentinels; one replica confirms every write, -ack=2 for both). Each client takes
// an exclusive lock, a read/write lock or permits, keeps it for a moment or for longer than a
// lease, and gives it back. It appends to a file what it does: granted, with the fence and with
// when it had asked; still held, with the moment before it looked at the lock's validity; given
// back; lost. What breaks: holders are killed, or stopped for longer than their leases; the master
// is killed, or stopped, replaced, and goes on; Redis stands still for longer than a lease (CLIENT
// PAUSE), and runs later what it was asked; links swallow what is sent.
//
// What must hold: each history has an explanation, an order of its grants and ends in which every
// one lies between its call and its return, and
//
//   - an exclusive lock goes to no process while another has it, and none gives back what it does
//     not hold (owner-aware mutex);
//   - every grant has a larger fence than all before it (fenced mutex), across failovers too;
//   - readers share, and a writer is alone (read/write);
//   - never more permits are out than there are (permits).
//
// The end of a grant lies between the last moment at which its holder looked and was told that the
// lock is his, and when he gave it back or noticed the loss. So a holder who still believes when
// the next one has been granted leaves no explanation: he must be told before the lock is free. A
// killed one ends at some time after his last look. A grant that no process was told of, since its
// process was killed or its outcome is not known, is no part of the history.
//
// That the check can find something is shown by the same processes with the lock that many have
// written, SETNX with a TTL and no fence, by histories with a fault put in for each model, and by a
// master that is replaced while it serves, where one confirmation does not do.
//
// Told before free: the link of a holder is cut, in many ways and at many moments (-trials), and so
// is that of a `coatcheck lock run`. The time in which the holder believes, or the command lives,
// while the next one holds is 0. The same trials with the lock that many have written find that it
// is not.
//
// The rest are the failures that users of other locks have published, on real processes: waiters
// that are killed or stand still, bursts of cancelled waiters, lost messages, and names that are
// used once.
//
// What is assumed: all processes share one machine, and so one clock, which is not set while a test
// runs.
package locks
