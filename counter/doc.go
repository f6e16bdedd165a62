// Package counter is INCR that can be trusted: whole numbers in Redis, one per key, that only grow.
//
// What holds, for counters that are only added to through this package:
//
//   - No value of a key is handed out twice, and a call that begins after another has returned gets
//     larger values. A call that fails as refused has added nothing that anybody gets; there may be
//     a gap only after a failure, a call that was given up, or [Counters.Set].
//   - Calls for one key that are under way at once in a process become one INCRBY, of which at most
//     one is in flight; a lone caller sends its own. Each call takes effect between its start and
//     its return.
//   - A call with a request id can be repeated: the same id gets the same value for as long as its
//     record is kept, and adds once.
//   - A value that is not a signed 64-bit integer, or that would overflow, is refused and stays as
//     it is.
//
// When Redis loses what it has confirmed, a counter that is found behind what this process has
// seen, or that was last used under another incarnation of the server, moves past everything that
// can have been handed out before it serves again, or is refused ([Config.AfterLoss]). This rests
// on assumptions, which docs/guarantees.md has in full:
//
//   - With redisstore.Config.Ack set to as many replicas as can become master, a failover loses
//     nothing that was handed out.
//   - Without, no more than [Config.Margin] values of one key were handed out and lost beyond what
//     the process that moves it has seen.
//   - After a loss of everything (a restart without data, FLUSHALL) counters go on only if a
//     process that has seen them still runs: nothing else knows their values. All running processes
//     hold off for [Config.HoldOff] and say what they have seen. A service that starts against an
//     empty Redis, when no other runs, takes it for new.
//
// After an unknown outcome values may have been added that nobody got: a gap, never a value twice.
// TTLs are Redis's: a counter that expires begins again, on purpose.
package counter
