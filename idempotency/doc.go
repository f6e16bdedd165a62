// Package idempotency makes an operation safe to ask for twice: one token, one handler start, one
// answer.
//
// A token is one record in Redis that is never deleted by use but changes state:
//
//	issued ──claim──▶ claimed(owner, fence, fingerprint, lease) ──complete──▶ completed(answer)
//	   ▲                 │      │ lease lapsed
//	   └──── release ────┘      ▼
//	 (it never began)        in doubt ──late owner completes──▶ completed
//
// What holds while Redis keeps what it has confirmed:
//
//   - Under [Hold] at most one handler starts for a token. If that attempt ends without an answer
//     (crash, panic, lost connection), the token is in doubt for the rest of its retention and
//     every later request is told so; nothing runs again by itself.
//   - Under [Takeover] a lapsed claim may be taken by a later request. Attempts can then overlap;
//     at most one of them, the newest, can still record its answer, and each has a larger fence
//     than all before it. An effect that must not happen twice has to refuse smaller fences, or be
//     unique by the token.
//   - Every later request gets the recorded answer, or the truth: in progress, outcome unknown,
//     other payload, unknown token.
//   - The answer is recorded before it is sent. If recording fails because Redis is away, the
//     answer is sent, recording is tried again in the background, and repeats hear "in progress",
//     later "outcome unknown", until it succeeds.
//   - If the claim cannot be made for certain, the handler does not run.
//
// A token names whom it was issued to: to another principal it is unknown, and with
// [Config].TokenKeys so is a forged one, without a question to Redis. The scope of a client's own
// key is principal, route and key. With [Config].AnswerKeys Redis holds no answer that it could
// read.
//
// What does not hold: nobody can promise "exactly once" for an effect outside Redis. If Redis loses
// a claim that it confirmed (failover without acknowledgement, restart without persistence,
// eviction, FLUSHALL), an issued token is refused as unknown, or, if only the claim was lost and
// not the token, it can run again; a client's own key can run again in both cases. Acknowledgement
// by replicas (redisstore.Config.Ack) closes the failover case.
//
// Time is the Redis server's. A process trusts its own claim for at most the lease from before the
// claim or heartbeat was sent.
package idempotency
