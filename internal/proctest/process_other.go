//go:build !linux

package proctest

import (
	"os/exec"
	"syscall"
)

// signalWithParent does nothing: only Linux tells a child. Tests still end their servers in their
// cleanup.
func signalWithParent(*exec.Cmd, syscall.Signal) {}
