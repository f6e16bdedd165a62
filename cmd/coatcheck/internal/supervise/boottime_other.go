//go:build unix && !linux

package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// bootClock is the clock that cannot be set. In a sleep it runs on macOS; elsewhere it may stand.
const bootClock = unix.CLOCK_MONOTONIC

// adoptOrphans and dieWithParent do nothing: the guard alone ends an orphaned command.
func adoptOrphans() error             { return nil }
func dieWithParent(*unix.SysProcAttr) {}

// self is the path of the running program.
func self() (string, error) { return os.Executable() }
