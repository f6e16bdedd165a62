// Package redisstore is everything that coatcheck knows about go-redis: a URL becomes a client with
// safe options, a script runs with its acknowledgement, names become keys, and every failure falls
// into one of three classes.
//
// What holds, whatever Redis does:
//
//   - No command is sent twice. go-redis's own retries are off, in a cluster as well; a redirect
//     (MOVED, ASK) or an unknown script hash (NOSCRIPT) is followed, since Redis has then said that
//     it ran nothing.
//   - An error tells what may have happened. [ErrRefused]: nothing. [ErrLost]: what was yours no
//     longer is. [ErrUnknownOutcome]: the command may have run, may run later (a hung server
//     executes what it has received once it wakes), or ran without the acknowledgement that was
//     asked for. Whether a command can have left this process is observed, not guessed: an error
//     before its bytes were written is a refusal.
//   - A user of Redis who may not run a command, and a command that Redis does not have, are
//     refusals as well. Redis looks at the rights for each command of a script: one that lacks some
//     of those that docs/operations.md lists can stop a script in its middle, and what it wrote
//     before that stays. The programs look for missing rights before the first call, and do not
//     start without them.
//   - Every call ends: with the context's deadline or after [Config.Timeout], whichever is sooner.
//   - With an acknowledgement of n, a call succeeds only if n replicas have confirmed the write;
//     fewer is [ErrUnknownOutcome] with a [*Shortfall]. What Redis loses in spite of that (all
//     copies at once, a master that restarts empty) shows as another incarnation of the server.
//
// When Redis is away a call fails at once if the connection is refused, and after the timeout if it
// hangs. After a failover or a change of a cluster's topology the client finds the new master by
// itself; calls in between fail as refused or unknown and are not repeated here.
package redisstore
