// Package embedded serves the store without a Redis: miniredis inside the process, with expiry that
// runs, a cap on its keys, an incarnation, and optionally a data directory. It is for trying
// coatcheck, for tests, and for one process that needs no failover. A program that imports it can
// give package redisstore the URL embedded:.
//
// # Promises
//
//   - One command, or one script with all that it calls, runs at a time, and its expiry is exact: a
//     key whose TTL has ended is never seen again, and none ends early. TTLs count on the process's
//     monotonic clock: a step of the wall clock does not move them, and a machine that sleeps makes
//     keys live longer. TIME is the wall clock.
//   - When it holds [Config.MaxKeys] keys it refuses commands and scripts that would make another,
//     as a whole and with an error that begins with "OOM ", before anything is changed. A script is
//     judged by the first key it declares; a script on an existing record may still make a second
//     key, up to a twentieth (and eight) over the cap. Above that a script runs only if all the
//     keys it declares exist. Keys that expired or were deleted free their room at once.
//   - Its data takes at most [Config.MaxBytes] of memory and a tenth, by an estimate that was
//     measured not to be below the heap. Beyond it commands and scripts are refused in the same way
//     by the bytes of their arguments; a twentieth more is reserved for existing records, and
//     another twentieth for small writes to them. Names that were used, below, and what connections
//     have not read come on top, and so does the garbage that Go has not collected yet: GOMEMLIMIT
//     bounds all of it.
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
//
// # States
//
// The states of a store with a data directory:
//
//	Open -- state.json clean, or of this boot --> serving, same incarnation -- Close --> clean
//	  |                               ^        |
//	  +-- unclean -- new incarnation, |        +-- disk fails --> MISCONF until a restart
//	  |              counters jump ---+        +-- killed --> not clean, of this boot
//	  +-- damaged --> ErrCorrupt; in use --> ErrInUse
//
// # The data directory
//
// With [Config.Dir] no reply is sent before the disk has all that it may reveal: its own changes,
// and those of others that it has read. Many connections share one fsync, and a reply without
// anything new costs none.
//
//   - Kill -9, a panic: nothing that was answered is lost, and the next start goes on as after a
//     clean stop, with the same incarnation, if it finds the directory itself and no copy, on a
//     machine (Linux) that has not been restarted since: what was written is in the system's memory
//     at least. A copy that is older than its original, put into its place, has to be without its
//     state.json: else a loss may not be noticed.
//   - A power loss, or a copy: nothing that was answered is lost, if the disk keeps what fsync
//     promised. A script is kept as a whole or not at all. The next start is unclean: the
//     incarnation is new, and every string that is a 64-bit integer and has no expiry is raised by
//     [CounterJump], so that counters jump ahead even where a disk did not keep its promise.
//   - A full or failing disk: all connections are closed, so that callers whose replies could not
//     be covered see an unknown outcome, and on new ones everything that reads or writes data is
//     refused with an error that begins with "MISCONF ", until the process is started again. It is
//     logged once. Reads are refused as well, since they could reveal what the disk does not have.
//   - A step of the wall clock while the process is down moves the expiry of what is kept, which is
//     written as absolute time. If the clock is earlier than the last time that the directory
//     knows, Open logs a warning: fences and leases count by it.
//   - A torn end of the last log, from a crash while writing, is dropped with a warning. It was
//     never answered. It may be cut off anywhere, and have zeros where the disk did not come to
//     write a sector. Any other damage makes Open fail with [ErrCorrupt], naming file, offset and
//     what to do.
//   - A start or a stop that is cut off, or that cannot write its snapshot, leaves a directory from
//     which the next start reads the same.
//   - A second process, or a second Open, on the directory fails with [ErrInUse].
package embedded
