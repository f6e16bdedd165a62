//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startGuard starts the guard of a command, whose window ends then.
func startGuard(args []string, env []string, file windowFile, end time.Duration, a Allowance) (*guarded, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	line, order, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	told, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, line.Close(), order.Close())
	}
	files := inherited(int(line.Fd()), int(out.Fd()))
	argv := append([]string{
		"coatcheck", guardCommand, "--lifeline", strconv.Itoa(int(line.Fd())), "--reports", strconv.Itoa(int(out.Fd())),
		"--end", end.String(), "--file", string(file), "--grace", a.Grace.String(), "--margin", a.Margin.String(), "--",
	}, args...)
	attributes := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true}}
	pid, err := syscall.ForkExec(path, argv, attributes) //nolint:gosec // path is this program's own
	if err = errors.Join(err, line.Close(), out.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("the command's guard: %w", err), order.Close(), told.Close())
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, errors.Join(err, order.Close(), told.Close())
	}
	g := &guarded{process: process, order: order, reports: make(chan report, 2), ended: make(chan struct{})}
	go g.await(told)
	return g, nil
}

// inherited are the descriptors of a guard: those that this process was started with, which are the
// command's own, and two more, all with the numbers that they have here. So the two take none that
// the command was given.
func inherited(more ...int) []uintptr {
	files := make([]uintptr, slices.Max(more)+1)
	for fd := range files {
		files[fd] = uintptr(fd)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if own := err != nil || flags&unix.FD_CLOEXEC != 0; own && !slices.Contains(more, fd) {
			files[fd] = ^uintptr(0) // it is not open there
		}
	}
	return files
}

// guarded is a command under a guard, for the process that started it.
type guarded struct {
	process *os.Process // the guard
	order   *os.File    // its lifeline
	reports chan report
	ended   chan struct{} // closed when the guard has ended, and its reports are read
}

// await reads the guard's reports until it ends.
func (g *guarded) await(told *os.File) {
	for lines := json.NewDecoder(told); ; {
		var r report
		if lines.Decode(&r) != nil {
			break
		}
		g.reports <- r
	}
	_ = told.Close()
	_, _ = g.process.Wait() // its reports have said all; without them it was killed
	close(g.ended)
}

func (g *guarded) pass(s os.Signal) {
	_ = g.say(fmt.Sprintf("%d\n", s)) // the guard may have ended
}

func (g *guarded) move(end time.Duration) error {
	return g.say(fmt.Sprintf(movedEnd+"%d\n", end.Milliseconds()))
}

// say writes a line to the guard, whole or not at all.
func (g *guarded) say(line string) error {
	// a guard that is stopped reads nothing
	if err := g.order.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	_, err := g.order.WriteString(line)
	return err
}

func (g *guarded) stop() { _ = g.order.Close() }
