// Package redisstore is coatcheck's use of go-redis: a URL becomes a client with safe options,
// scripts run with their acknowledgement, names become keys, failures have one of three classes.
//
// A store is made of what a program has:
//
//   - a client of go-redis, with any settings: [From];
//   - the options of a client for Sentinel: [FromFailover];
//   - a URL: [Open], and [OpenConfig] with all settings.
//
// The promises, whatever Redis does:
//
//   - No command is sent twice. go-redis's own retries are off, in a cluster as well; a redirect
//     (MOVED, ASK) or an unknown script hash (NOSCRIPT) is followed, since Redis has then said that
//     it ran nothing.
//   - An error shows what may have happened. [ErrRefused]: nothing. [ErrLost]: the caller no longer
//     holds it. [ErrUnknownOutcome]: the command may have run, may run later (a hung server
//     executes what it has received once it wakes), or ran without the acknowledgement that was
//     asked for. Whether a command can have left this process is observed, not guessed: an error
//     before its bytes were written is a refusal.
//   - A command that the user of Redis may not run, or that Redis does not have, is a refusal as
//     well. Redis checks the rights for each command of a script: a user without some of those in
//     docs/operations.md can stop a script in its middle, and its earlier writes stay. The programs
//     look for missing rights before the first call, and do not start without them.
//   - Every call ends: with the context's deadline or after [Config.Timeout], whichever is sooner;
//     with over 16 KiB of arguments it waits up to ten seconds for its turn before that, and has a
//     second more for each 4 MiB.
//   - With an acknowledgement of n, a call succeeds only if n replicas have confirmed the write;
//     fewer is [ErrUnknownOutcome] with a [*ShortfallError]. If Redis loses data in spite of that
//     (all copies at once, a master that restarts empty), the server has another incarnation.
//
// When Redis is away a call fails at once if the connection is refused, and after the timeout if it
// hangs. After a failover or a change of a cluster's topology the client finds the new master by
// itself; calls in between fail as refused or unknown and are not repeated here.
package redisstore
