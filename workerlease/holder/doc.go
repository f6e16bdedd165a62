// Package holder holds a worker id: it acquires a lease, keeps it alive, states what may be stamped
// with it, and gives it back. Packages workerlease and client start one: by Redis, and by the HTTP
// API.
//
// The promise: [Holder.Lease] names a worker id and a window of id timestamps only while a grant or
// renewal that was confirmed is young enough, by monotonic and wall time; the window it names was
// recorded where it was granted before this process heard of it. Its clock is the granting server's
// time, anchored at a reply and carried on by the local monotonic clock: a wall clock that is wrong
// or jumps changes nothing.
//
// Two promises are others': package workerlease grants no two windows of one worker id that
// overlap, and package snowflake stamps no id outside of its window.
package holder
