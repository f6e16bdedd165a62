package proctest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a running child. Its exit is always collected, so its id is free again once Done is
// closed. Only Start makes one. It may be used by several goroutines.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a command, and waits for it on the same operating system thread. On Linux the child
// gets the signal last when this process dies. The thread matters for that: the child gets it when
// the very thread ends that has started it, and the Go runtime ends idle threads as it likes.
func Start(cmd *exec.Cmd, last syscall.Signal) (*Process, error) {
	SignalWithParent(cmd, last)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the process's end and tells how that was, as [exec.Cmd.Wait] does.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Running reports whether the process has begun and not ended. A stopped one runs; nil does not.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal, and reports whether the process got it. A free id is never signalled.
func (p *Process) Signal(signal syscall.Signal) (sent bool) {
	return p.cmd.Process.Signal(signal) == nil
}

// End ends the process, also a stopped one, with a signal that it must take, and waits for that.
func (p *Process) End(signal syscall.Signal) {
	p.Signal(signal)
	p.Signal(syscall.SIGCONT)
	<-p.done
}

// Kill is End with SIGKILL.
func (p *Process) Kill() { p.End(syscall.SIGKILL) }
