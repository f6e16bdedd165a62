// Package counter is INCR that can be trusted: whole numbers in Redis, one per key, that only grow.
//
// What holds while Redis keeps what it has confirmed:
//
//   - No value of a key is handed out twice, and later calls get larger values. A call that fails as refused has added nothing.
//   - A call with a request id can be repeated: the same id gets the same value for as long as its record is kept, and adds once.
//   - A value that is not a signed 64-bit integer, or that would overflow, is refused and stays as it is.
//
// After an unknown outcome a value may have been added that nobody got: a gap, never a value twice. If Redis loses writes that it confirmed (failover
// without acknowledgement, restart without persistence), values can be handed out again: set redisstore.Config.Ack.
package counter
