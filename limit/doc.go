// Package limit is rate limits on Redis that all processes share: so many in a span of time, so
// many at once.
//
// # Promises
//
//   - A limit of a name lets its burst through at once, and then as much as its rate gives, evenly
//     (the generic cell rate algorithm). In any span of time that is at most the burst and the rate
//     times the span, for all processes on one Redis together and whatever their own clocks say.
//   - A call is one script and one round trip, and takes all of its cost or none of it. Calls of a
//     process for one name that come while one is under way go out together, in the order in which
//     they came.
//   - A name that is not in use leaves nothing in Redis.
//
// # Requirements
//
//   - What is in use is kept in Redis alone, and replicas are not waited for. Where Redis loses it,
//     in a failover, a restart or FLUSHALL, and where its clock jumps ahead, a limit lets at most
//     one burst more through. Where its clock is set back, what is in use is free again after no
//     longer than that takes from the next call on.
//   - When Redis is away nothing is decided (redisstore.ErrUnavailable): the caller goes on or does
//     not, as it prefers.
//   - After redisstore.ErrUnknownOutcome the cost may have been taken. Asking again may take it
//     twice, and lets nothing more through.
//   - All calls for a name state the same [Rate]. Where they do not, each call is judged by its
//     own, over the same use.
package limit
