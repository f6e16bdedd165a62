package sqltest

import "github.com/coatcheck/coatcheck/internal/testing/proctest"

// children lists the processes that a process has started and that still run.
func children(parent int) (pids []int) { return proctest.Children(parent) }

// ended reports whether a process runs no more. Its entry may be left.
func ended(pid int) bool { return proctest.Ended(pid) }
