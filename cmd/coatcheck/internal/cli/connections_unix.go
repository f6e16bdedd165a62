//go:build unix

package cli

import "syscall"

// descriptorLimit is how many files the process may open. The Go runtime has raised it.
func descriptorLimit() (n uint64, known bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true //nolint:unconvert // it is signed on some systems
}
