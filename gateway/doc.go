// Package gateway is a reverse proxy that makes routes of a service in any language safe to ask for
// twice. It stands in front of one upstream, and guards the routes of its file with package
// idempotency. It is closed: a request with a method that is not safe (RFC 9110, 9.2.1) reaches the
// upstream only if the file names it, letter by letter, with its path in one spelling (see
// docs/gateway.md). So no other reading of a path by the upstream is one that the file did not
// mean. The operation is caller and key, for the whole gateway: method and path are compared, so
// that a key is never run again under another path.
//
// The promises for a guarded request, while Redis keeps what it has confirmed:
//
//   - It is sent to the upstream at most once for each attempt that was granted: never again on
//     another connection, whatever the method and the headers. Under the policy hold that is at
//     most once for a token or key.
//   - Its answer is recorded before it is sent, and only if it arrived whole. Repeats get the
//     recorded answer and do not reach the upstream. An answer that has neither a length nor chunks
//     ends when its connection is closed, and then counts as whole (RFC 9112, 8): HTTP has no sign
//     by which it differs from the answer of a service that died in the middle. Chunks of HTTP/1.0,
//     which has none (RFC 9112, 6.1), are taken for such an answer.
//   - The claim is given back only if provably no byte of the request was handed to a connection,
//     such as after a refused dial.
//   - An answer that comes before the upstream has read the whole request is its answer, also if
//     the rest could not be written.
//   - If the upstream was written to and then timed out, broke off or answered something that is no
//     answer, the token is in doubt at once, and the client is told so.
//   - A client that hangs up ends nothing: the upstream goes on to its end and its answer is
//     recorded. Only the route's own time limit, a lost claim and the end of the gateway cut it
//     short, and each leaves the token in doubt.
//   - If the claim cannot be made for certain, since Redis is away, nothing is sent upstream.
//
// What it cannot promise: the upstream may have had its effect without the gateway learning of it.
// Then later requests are answered "outcome unknown" (hold), or one of them may run with a larger
// fence (takeover), which the upstream gets as the header Idempotency-Fence.
//
// Safe requests that match no guarded route, and those that the file says pass unguarded, are
// streamed in both directions, WebSocket and other upgrades, trailers and informational answers
// included.
package gateway
