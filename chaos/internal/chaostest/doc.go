// Package chaostest is the harness of the suites under chaos. A suite has a client and its rules;
// the rest is here:
//
//   - a [Field] of processes, each of which does a [Task] and tells what it got done in a file, and
//     services that say where they answer ([Serve], [Coatcheck]);
//   - tables of [Fault], the [Stages] in which they strike, and what breaks: masters, links
//     ([Link], [Losses]) and the [Sentinels] that replace a master;
//   - what finds the wrong in what was told: [Twice], [Overlaps], [Falling];
//   - a lot that can be drawn again, and rows for docs/proof.md.
//
// What a suite may rely on:
//
//   - A process ends with the test, or with the test binary, however that ends (the latter on Linux
//     only). One that was stopped stands still when Stop returns, and has nothing on its way but
//     what lies in the network already: see [Process.Stop].
//   - Replicas follow their master when [Replicate] returns: the next write is confirmed as soon as
//     it has come to them.
//   - Everything here waits for conditions. A limit is for what would else hang, and is never how
//     long something takes.
//
// Functions that can fail report it with t.Fatal, which ends the calling goroutine. Unix only.
package chaostest
