//go:build !linux

package sqltest

import (
	"os/exec"
	"syscall"
)

// signalWithParent does nothing: only Linux tells a child. Tests still end their servers in their cleanup.
func signalWithParent(*exec.Cmd, syscall.Signal) {}

// children finds none: a server that is killed leaves it to its own to notice.
func children(int) []int { return nil }

func ended(int) bool { return true }
