// Package ids has processes stamp Snowflake ids with leased worker ids while processes and Redis
// are broken, and looks for two ids that are equal.
//
// Each stamping process is a real one of its own: it leases a worker id of a ring of eight, by
// package workerlease on a real Redis (a master, two replicas, three sentinels; both replicas
// confirm every grant), stamps as package snowflake does, and appends every id to a file of its
// own. What breaks: a process is stopped for longer than its lease and goes on, is killed, or gives
// its lease back, all of them at once too, so that the small ring goes round and round; Redis
// forgets everything, loses one record or comes back empty, its master is killed, or is stopped,
// replaced, and goes on.
//
// What must hold: among all files no id is there twice, and in each file ids rise. A test takes the
// word of nothing but the files. That it can find what it looks for is shown by the same processes
// with the allocator that many have written: INCR, a mask, and a key with a TTL for each worker id.
//
// What is assumed is written in docs/guarantees.md; here all servers share one machine, and so one
// clock.
package ids
