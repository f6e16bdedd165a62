// Package stamper makes Snowflake ids with worker ids that this process leases itself: one lease
// and one generator a pool, leased when the pool is first used and given back when it was not used
// for a while, when its place is needed for another owner's pool, or at the end.
//
// Its promises are its parts': a granted window is this process's alone (package workerlease), it
// is not used for longer than it lasts (package workerlease/holder), and no id is stamped outside
// of it or twice (package snowflake). It adds that an id is made with the layout and epoch of its
// own lease. A pool that was lost and begins anew with another layout gets another generator.
//
// A lease that is lost is followed by another as soon as one is granted, perhaps with another
// worker id. In between, and while the pool is quarantined or exhausted or cannot be reached,
// every call is refused at once with the reason and, where it is known, how long to wait.
package stamper
