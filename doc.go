// Package coatcheck is the root of a module that hands out one-use tokens, counters and worker ids
// on Redis, as Go packages and as an HTTP service, and itself holds nothing but an example. Begin
// with package idempotency to guard a handler against running twice, counter for numbers that rise
// and never come twice, or workerlease for small integers that one process at a time may use; all
// of them take a store that redisstore opens from a URL. The service over them is server, and
// cmd/coatcheck is its binary. Each package's documentation says what holds, under which failures,
// and what does not.
package coatcheck
