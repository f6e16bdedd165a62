// Package embedded serves the store without a Redis: miniredis inside the process, with expiry
// that runs, a cap on its keys and an incarnation. All of it is in memory, and gone when the
// process ends. It is for trying coatcheck, and for tests. A program that imports it can give
// package redisstore the URL embedded:.
//
// # Promises
//
//   - One command, or one script with all that it calls, runs at a time, and its expiry is exact: a
//     key whose TTL has ended is never seen again, and none ends early. TTLs count on the process's
//     monotonic clock: a step of the wall clock does not move them, and a machine that sleeps makes
//     keys live longer. TIME is the wall clock.
//   - Its data takes at most [Config.MaxBytes] of memory and a tenth, by an estimate that was
//     measured not to be below the heap. Commands and scripts whose arguments are beyond that are
//     refused as a whole and with an error that begins with "OOM ", before anything is changed. A
//     twentieth more is reserved for existing records, by the first key that a script declares, and
//     another twentieth for small writes to them. Keys that expired or were deleted free their room
//     at once. Names that were used, below, and what connections have not read come on top, and so
//     does the garbage that Go has not collected yet: GOMEMLIMIT bounds all of it.
//   - A TTL under [MinTTL] is refused. One command changes nothing then; a script stops there and
//     keeps what it wrote before, as on any Redis.
//   - INFO replication returns the incarnation as master_replid, also inside a script. FLUSHALL
//     does not change it.
//
// # Limits
//
// There are no replicas and no failover, WAIT answers 0, and one process serves alone. It offers
// the commands for strings, hashes, lists, sets and sorted sets, scripts and publish/subscribe, on
// database 0; it refuses transactions, blocking commands, streams, HyperLogLogs, TTLs of hash
// fields and other databases, with an error that says so. miniredis remembers every key name that
// was ever used, so a process that uses new names for ever grows until it is started again.
package embedded
