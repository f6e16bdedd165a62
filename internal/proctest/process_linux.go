package proctest

import (
	"os/exec"
	"syscall"
)

// signalWithParent has the kernel send a command's process a signal when the thread that starts it
// ends.
func signalWithParent(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
}
