// Package chaostest is what the tests under chaos have in common: processes that are killed and
// stopped, a Redis whose master is replaced, and a lot that can be drawn again.
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
