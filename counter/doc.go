// Package counter is INCR that can be trusted: whole numbers in Redis, one per key, that only grow.
//
// # Promises
//
// For counters that are only added to through this package:
//
//   - No value of a key is handed out twice, and a call that begins after another has returned gets
//     larger values. A call that fails as refused has added nothing that a caller gets; there may
//     be a gap only after a failure, a call that was given up, or [Counters.Set].
//   - Concurrent calls of a process for one key become one INCRBY, of which at most one is under
//     way; a lone caller sends its own. Each call takes effect between its start and its return.
//   - A call with a request id can be repeated: the same id gets the same value for as long as its
//     record is kept, and adds once.
//   - A value that is not a signed 64-bit integer, or that would overflow, is refused and stays
//     unchanged.
//
// After an unknown outcome values may have been added that no caller got: a gap, never a value
// twice. TTLs are Redis's: a counter that expires begins again, on purpose. Whoever begins a
// counter decides whether it ends: [ErrPermanent].
//
// # States
//
// The states of a counter as a process sees it:
//
//	unknown -- first call --> opened -- INCRBY --> opened
//	                           |  ^
//	   lower than was seen, or |  | moved past all values (AfterLossMovePast), or set
//	   another incarnation     v  |
//	                         in doubt -- Refuse, or the move would pass
//	                           |         the request's Limit --> ErrBehind, until it is set
//	                           |
//	                           +-- everything lost --> ErrHoldOff, until all processes have reported
//
// # Loss of state
//
// Redis can lose what it has confirmed. A counter that is found below what this process has seen,
// or that was last used under another incarnation of the server, moves past everything that can
// have been handed out before it serves again, or is refused ([Config.AfterLoss]). docs/counters.md
// has each kind of loss, and docs/guarantees.md the assumptions: above all redisstore.Config.Ack,
// or a [Config.Margin] that exceeds what can be lost. After a loss of everything counters go on
// only if a process that has seen them still runs, since all running processes hold off for
// [Config.HoldOff] and report what they have seen.
package counter
