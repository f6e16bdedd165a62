//go:build !linux

package proctest

import (
	"os/exec"
	"syscall"
)

// SignalWithParent does nothing: only Linux tells a child. Tests still end their servers in their
// cleanup.
func SignalWithParent(*exec.Cmd, syscall.Signal) {}
