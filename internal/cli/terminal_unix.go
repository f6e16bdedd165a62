//go:build unix

package cli

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal that a command was lent: the process group that had it before; 0 = none
// was lent.
type terminal struct{ owner int }

const standardInput = 0

// lend has a command started in the terminal's foreground if that is where `worker run` is, the
// parent of this process. So the command can read from it, and Ctrl-C goes to the command. Ctrl-Z
// does nothing: nothing could tell the shell that the command has stopped.
func (t *terminal) lend(sys *syscall.SysProcAttr) {
	front, err := unix.IoctlGetInt(standardInput, unix.TIOCGPGRP)
	if err != nil {
		return // not a terminal
	}
	if ours, err := syscall.Getpgid(syscall.Getppid()); err != nil || ours != front {
		return
	}
	signal.Ignore(syscall.SIGTSTP, syscall.SIGTTOU)
	t.owner, sys.Foreground, sys.Ctty = front, true, standardInput
}

// takeBack gives the terminal to who had it.
func (t *terminal) takeBack() {
	if t.owner != 0 {
		_ = unix.IoctlSetPointerInt(standardInput, unix.TIOCSPGRP, t.owner) // it may have hung up
	}
}
