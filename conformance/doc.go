// Command conformance is a black-box suite for idempotent HTTP operations: it can be pointed at any
// server, in any language, whose route takes an Idempotency-Key
// (draft-ietf-httpapi-idempotency-key-header-07), or tokens that the server issues itself, as
// coatcheck does.
//
//	go run ./conformance -url http://localhost:8080 -path /payments -count-url /payments -count-field total
//
// It sends requests and looks at the answers, and at the number of effects where the server tells
// one; it knows nothing of what it looks at. What each check asks for, and what it needs to be
// told, -list prints, and README.md explains. The exit code is 0 when all checks have passed, 1
// when one has failed, and 2 when the command line cannot be meant or the server does not answer
// as the command line says.
//
// What may be relied on:
//
//   - No request is sent twice by the suite itself: every request has a connection of its own,
//     which is never used again, so that net/http does not repeat it. (On a connection that was
//     used before, it repeats requests with an Idempotency-Key by itself.)
//   - A check that has passed has seen what it asks for. One that could not see it, since it was
//     not told how, is "not applicable" and says what it needs.
//   - Checks run one after the other and leave no request behind. They have real effects on the
//     server: point the suite at one where that is no harm, and where no other client has effects
//     meanwhile, or the count does not tell theirs from the suite's.
//
// What may not: a race that a server loses once in a million requests is seen once in a million
// requests. A suite can show that something is broken, not that nothing is.
package main
