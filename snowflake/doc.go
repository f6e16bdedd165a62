// Package snowflake makes, takes apart and writes Snowflake ids: 63 bits shared between a
// timestamp, a worker id and a sequence.
//
// A [Generator] stamps ids with a worker id that is its own for a window of id timestamps. It asks
// a [Worker] for that [Lease]; package workerlease grants them, and [Static] is for processes that
// are numbered by hand. The promises:
//
//   - Every id's timestamp lies wholly in a window that was confirmed for the worker id inside it.
//     A pause between the check and the use changes nothing, since the timestamp that was checked
//     is the one inside the id. If windows of one worker id never overlap, no two ids of two
//     generators are equal.
//   - Within a window (timestamp, sequence) is never used twice: not when a renewal arrives, when a
//     lease comes back after an error, when its clock moves, when the grant changes and changes
//     back, or when the generator is stopped.
//   - The ids that one goroutine gets rise strictly, also over grants.
//   - Time is the lease's: the server's time at the grant plus monotonic time since then. No wall
//     clock is read. An id's timestamp is at most [MaxLead] ahead of that clock. It never goes
//     back: when a renewal comes with a slower clock, time stands still until that clock has caught
//     up.
//   - Nothing is stamped after Stop has returned, outside of the window, before the epoch, or when
//     the timestamp's bits are used up. Those calls fail.
//
// The limits: ids of different generators are ordered only as well as their clocks agree, a
// sequence may have holes, and two generators on one lease repeat each other's ids.
//
// A full sequence runs on into the next unit of time, up to the lead; then callers wait, in the
// order in which they came.
//
// The package does no I/O and imports only the standard library, and internal/step, which has no
// code but in tests. Everything in it is safe for concurrent use but where it says otherwise.
package snowflake
