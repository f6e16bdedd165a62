// Package client is the Go client of the coatcheck HTTP service. It needs only the service's URL.
//
// [Client.Do] runs a function under a one-use token, with the same state machine as package
// idempotency: claim, heartbeat, complete. The single steps ([Client.Issue], [Client.Status],
// [Client.Claim], [Client.Complete], [Client.Extend], [Client.Release]) are there as well.
//
// [Client.DoKey] is the same for work that has an id already, such as a message or a webhook's
// event: no token is issued for it. Its steps are [Client.ClaimKey], [Client.CompleteOperation],
// [Client.ExtendOperation] and [Client.ReleaseOperation].
//
// [Client.HoldWorker] leases a worker id and keeps it, so that package snowflake can stamp ids with
// it. The single steps are [Client.AcquireWorker], [Client.RenewWorker] and [Client.ReleaseWorker].
//
// [Client.AcquireLock] holds a lock, as package lock does on Redis itself.
//
// [Client.Incr] and [Client.Add] add to counters. The values belong to the caller alone.
//
// # Promises
//
// In addition to those of package idempotency for tokens and of package workerlease for worker ids:
//
//   - Under [PolicyHold] at most one function starts for a token, among all callers: this package,
//     the middleware or a client in another language.
//   - Nothing is sent twice by itself, except where a repeat is harmless: a claim whose reply is
//     lost is sent again with the same lease token; in Do, an answer that may not have been
//     recorded is sent again, and so is a release; AcquireLock, which while it waits asks anew
//     after an outage; and an Add with Repeat. Redirects are not followed: they would carry the
//     proof of a claim elsewhere.
//   - Every error is of one class: [ErrRefused] (nothing was done), [ErrLost] (the claim is
//     another's) or [ErrUnknownOutcome] (it may have been done). A connection that never came about
//     is a refusal. Once a connection was there, a failure to get the service's own answer to a
//     write is an unknown outcome: a timeout, a connection that ends, a proxy's page whatever its
//     status, an answer that cannot be read.
//   - A holder of a worker id stops by its own clock before its window ends, whatever the service
//     and the proxies in between do; only the service's own answers end or extend a lease, never a
//     proxy's. So does the context of a lock, before another can hold it. A renewal sends the whole
//     lease, so that one that the store has lost is recorded anew while its window is open.
//   - What a lost reply costs stands with [Client].
//   - No error text holds a token, an API key or the proof of a claim or lease.
//
// Time is the service's. An attempt trusts its own claim for at most the lease from before the
// claim or heartbeat was sent, by this process's monotonic clock.
//
// An HTTPClient of the caller's own must not repeat requests by itself, or none of this holds. That
// of net/http does not: it repeats a POST only if nothing of it was sent, or if it has an
// Idempotency-Key header. Only an Add with a request id has one, and repeating that adds nothing.
package client
