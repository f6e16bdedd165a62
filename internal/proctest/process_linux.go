package proctest

import (
	"os/exec"
	"syscall"
)

// SignalWithParent has the kernel send a command's process a signal when the thread that starts it
// ends.
func SignalWithParent(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
}
