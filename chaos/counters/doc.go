// Package counters has processes count while processes and Redis are broken, and looks for values
// that were told to two callers.
//
// Each process is a real one of its own with four clients that share one counter.Counters: on a
// real Redis (a master, two replicas, three sentinels; both replicas confirm every write,
// everything else is as by default) they add 1, or a range, to a few counters, one of them mostly
// to one and all of them to each, and write down what they were told: key, first and last value,
// and when the call began and returned by one clock of the machine. What breaks: the master is
// killed; is cut off from replicas and sentinels, alone or with one of the replicas, and serves
// clients on its side on; comes back empty before any sentinel has seen it away; is stopped,
// replaced, and goes on; pauses its clients; all of Redis is lost, or one counter; a process is
// killed and another one comes.
//
// What must hold: no value of a counter is told twice, and a call that begins after another has
// returned is told larger values. A test trusts nothing but the files. That it can find what it
// looks for is shown by the same processes with go-redis's INCR and INCRBY, without retries.
//
// A cut is one of access, not of wires: clients, replicas and sentinels come as users of their own,
// and the server ends the connections of some of these and runs no command for them any more. What
// it confirms to the others, and what no other process hears of, is the same as behind a link that
// is cut. What is assumed is in docs/guarantees.md.
package counters
