// Package idempotency makes an operation safe to ask for twice: a token has one start, one answer.
//
// # Three ways
//
// All three share their records: what one has claimed or recorded, no other runs again.
//
//   - [Tokens.Middleware], for an HTTP handler: the client sends a token or a key in a header, and
//     a repeat gets the answer that the first request got. Take it where the operation is one
//     request; in front of a service in another language, the gateway does the same.
//   - [Tokens.Do], for a function: a consumer of a queue, a job, a webhook's receiver, a tool call.
//     Take it where the operation begins and ends in one call, most often under an id that the work
//     has already ([Key]): no token is issued then.
//   - [Tokens.Claim], [Tokens.Extend], [Tokens.Complete] and [Tokens.Release], the steps of the
//     other two: for an operation that one process begins and another ends, or that is no call,
//     such as a batch or a state machine. Heartbeat and local deadline are the caller's.
//
// Each has an example below. Programs that do not reach Redis take the same steps over HTTP:
// package client has Do and DoKey.
//
// # States
//
// A token is one record in Redis. Using it changes its state and never deletes it:
//
//	issued --claim--> claimed(owner, fence, fingerprint, lease) --complete--> completed(answer)
//	   ^                 |      | lease lapsed
//	   +---- release ----+      v
//	 (it never began)        in doubt --late owner completes--> completed
//
// # Promises
//
// While Redis keeps what it has confirmed:
//
//   - Under [PolicyHold] at most one handler starts for a token. If that attempt ends without an
//     answer (crash, panic, lost connection, a status that is none), the token is in doubt until
//     somebody settles it, for 30 days at least ([Config].KeepOpen), and every later request gets
//     an error that says so; nothing runs again by itself.
//   - Under [PolicyTakeover] a later request may take over a lapsed claim. Attempts can then
//     overlap; at most one of them, the newest, can still record its answer, and each has a larger
//     fence than all before it. An effect that must not happen twice has to refuse smaller fences,
//     or be unique by the token.
//   - Every later request gets the recorded answer, or the truth: in progress, outcome unknown,
//     other payload, unknown token. No status frees a token by itself: [Attempt.Release] and
//     [Route].Frees do.
//   - The answer is recorded before it is sent. If recording fails because Redis is away, the
//     answer is sent, recording is retried in the background, and repeats get "in progress", later
//     "outcome unknown", until it succeeds.
//   - If the claim cannot be made for certain, the handler does not run.
//   - A repeat gets its answer while replicas are away. So a master that was replaced and goes on
//     may give one that no replica has: under PolicyTakeover a later attempt may then answer
//     otherwise.
//
// A token belongs to the principal it was issued to: to another principal it is unknown, and with
// [Config].TokenKeys so is a forged one, without a request to Redis. The scope of a client's own
// key is principal, route and key. With [Config].AnswerKeys Redis holds no answer that it could
// read.
//
// # Limits
//
// "Exactly once" is impossible for an effect outside Redis. If Redis loses a claim that it
// confirmed (failover without acknowledgement, restart without persistence, eviction, FLUSHALL), an
// issued token is refused as unknown, or, if only the claim was lost and not the token, it can run
// again; a client's own key can run again in both cases. Acknowledgement by all replicas
// (redisstore.Config.Ack) prevents this in a failover; by fewer, where the old master is dead.
//
// Time is the Redis server's. A process trusts its own claim for at most the lease from before the
// claim or heartbeat was sent.
package idempotency
