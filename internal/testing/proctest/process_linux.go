package proctest

import (
	"os/exec"
	"syscall"
)

// SignalWithParent has the kernel signal a command's process when the thread that started it ends.
func SignalWithParent(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
}
