//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing: only Linux ends a child with its parent. Tests still end their servers in their cleanup.
func dieWithParent(*exec.Cmd) {}
