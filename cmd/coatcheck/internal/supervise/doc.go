// Package supervise runs a command while a lease is held for it, and stops the command and all that
// it has started before the lease's window ends.
//
// # Two processes
//
// [Run] starts a guard, which is this program once more with the arguments of `coatcheck guard`,
// and the guard starts the command in a process group of its own. The guard begins in an init of
// this package, before Go initializes the packages of the service:
//
//	Run ── lifeline: signals, moved ends of the window ──▶ guard ── parent of ──▶ command
//	    ◀── reports: begun, ended, failed ────────────────
//
// The guard ends the command a margin before the end of the window, also where the process that
// called Run was killed or is stopped. Run kills the command where the guard does not. Both judge
// by the boot clock ([SinceBoot]), which no one can set.
//
// Run polls the lease for its window's end, which the command reads in [Lease.Environment]'s file.
//
// # Systems
//
// It needs process groups and signals, and so a Unix system. Only Linux kills the command together
// with a guard that was killed.
package supervise
