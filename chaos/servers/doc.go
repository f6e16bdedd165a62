// Package servers breaks the server under two running services: what is on its disk, its memory,
// its clock, its place in a cluster, its name, and the program that it is; it changes the program
// of the services, forth and back; and it has one serve on what looks like other engines. It has
// only tests.
//
// Each service is a real process of `coatcheck serve` with a Redis that it shares with the other.
// Clients in the test, by package client, count, take one lock, stamp ids with leased worker ids,
// and run functions under tokens, two at a time under each. What they are told is written down.
//
// What must hold, whatever breaks: no value of a counter is told twice, and a call that begins
// after another has returned is told a larger one; no id is stamped twice; fences of the lock rise;
// no function starts twice for a token, and its answer stays the same; every error is of one class;
// and when the server is in order again, all go on by themselves. Where nothing is lost, values
// that no client was told are no more than calls whose outcome is unknown: a refused call added
// nothing. Where clocks are right, no two clients believe at once that they have the lock.
//
// The one exception is written down in docs/operations.md (Restore): with older files a token that
// was issued before the copy, and used after it, runs again.
//
// A server is broken without rights of root: a full disk is RLIMIT_FSIZE, and a clock that is set
// is libfaketime in the server alone.
package servers
