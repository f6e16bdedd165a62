//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal of a guard, which lends it to its command on demand. Until then the
// other programs in the pipeline of `lock run` have it.
type terminal struct {
	file  *os.File // nil = there is none
	asked bool     // the command waits for it
	owner int      // the process group that had it before; 0 = it was not lent
}

// openTerminal opens the terminal of this process, if it has one. Ctrl-Z then does nothing to a
// command: nothing could tell the shell that the command has stopped.
func openTerminal() terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return terminal{}
	}
	signal.Ignore(syscall.SIGTSTP) // which a command inherits
	return terminal{file: file}
}

// ask is called when the command's process group was stopped with a signal.
func (t *terminal) ask(group int, stopped syscall.Signal) {
	if t.file == nil || stopped != syscall.SIGTTIN && stopped != syscall.SIGTTOU {
		return
	}
	t.asked = true
	t.lend(group)
}

// lend gives the terminal to a command that waits for it, as soon as it is where `lock run` is, the
// parent of this process: that may be in the background of its shell. The command goes on then, and
// Ctrl-C goes to it directly.
func (t *terminal) lend(group int) {
	if !t.asked {
		return
	}
	front, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return
	}
	if ours, err := syscall.Getpgid(syscall.Getppid()); front != group && (err != nil || ours != front) {
		return
	}
	if front != group {
		// this process is in the background as well: after the command's start, which inherits it
		signal.Ignore(syscall.SIGTTOU)
		if unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) != nil {
			return
		}
		t.owner = front
	}
	t.asked = false
	_ = syscall.Kill(-group, syscall.SIGCONT)
}

// takeBack gives the terminal to the process group that had it before.
func (t *terminal) takeBack() {
	t.asked = false
	if t.owner != 0 {
		// it may have hung up
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.owner)
	}
}
