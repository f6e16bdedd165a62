package sqltest

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child. Its exit is always collected.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; to be read after done
}

// startProcess starts a child that gets a signal when the test binary dies. That comes when the thread ends that has started it, so the thread stays.
func startProcess(cmd *exec.Cmd, last syscall.Signal) (*process, error) {
	signalWithParent(cmd, last)
	p := &process{cmd: cmd, done: make(chan struct{})}
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

// stop ends the process with a signal that it can not refuse, and returns when it is gone.
func (p *process) stop(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // it may be gone
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	<-p.done
}

// crash ends the process and all that it has started as if at once, and returns when none of them runs any more. While it is stopped it starts no others, and the ids of those
// that have ended are given to nobody.
func (p *process) crash() {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it is gone, and its id may be another's
		<-p.done
		return
	}
	pids := children(p.cmd.Process.Pid)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
	}
	p.stop(syscall.SIGKILL)
	for _, pid := range pids {
		for !ended(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}
