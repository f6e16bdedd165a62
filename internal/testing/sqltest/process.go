package sqltest

import (
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// crash ends the process and all that it has started as if at once, and returns when none of them
// runs any more. While it is stopped it starts no others, and no ended one's id is reused.
func crash(p *proctest.Process) {
	if !p.Signal(syscall.SIGSTOP) { // it is gone, and its id may be another's
		<-p.Done()
		return
	}
	pids := children(p.Pid())
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
	}
	p.Kill()
	for _, pid := range pids {
		for !ended(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}
