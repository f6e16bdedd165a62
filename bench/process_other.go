//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing: elsewhere a process ends when the command that started it ends in
// order, or sees its standard input end.
func dieWithParent(*exec.Cmd) {}
