package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a running child. Its exit is always collected, so its id is free again once done is closed.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; to be read after done
}

// startProcess starts cmd and waits for it on the same operating system thread. The thread matters: a child that is
// to die with its parent dies with the very thread that forked it, and the Go runtime ends idle threads as it likes.
func startProcess(cmd *exec.Cmd) (*process, error) {
	dieWithParent(cmd)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// running reports whether p has been started and has not ended. A paused process is running.
func (p *process) running() bool {
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

// signal sends sig to p. A process that is gone already is not an error: its id is never signalled again.
func (p *process) signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
}

// kill ends p, paused or not, and returns when it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}
