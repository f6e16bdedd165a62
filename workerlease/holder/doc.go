// Package holder holds a worker id: it acquires a lease, keeps it alive, says what may be stamped
// with it, and gives it back. Packages workerlease and client start one: by Redis, and by the HTTP
// API.
//
// What it promises: [Holder.Lease] names a worker id and a window of id timestamps only while a
// grant or renewal that was confirmed is young enough, by monotonic and wall time; the window it
// names was recorded where it was granted before this process heard of it. Its clock is the
// granting server's time, anchored at a reply and carried on by the local monotonic clock: a wall
// clock that is wrong or jumps changes nothing.
//
// What it leaves to others: that no two windows of one worker id overlap is the promise of who
// grants (package workerlease); that no id is stamped outside of its window is the promise of who
// stamps (package snowflake).
package holder
