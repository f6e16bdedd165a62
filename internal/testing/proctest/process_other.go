//go:build !linux

package proctest

import (
	"os/exec"
	"syscall"
)

// SignalWithParent does nothing: only Linux tells a child. Tests' cleanups end their servers.
func SignalWithParent(*exec.Cmd, syscall.Signal) {}
