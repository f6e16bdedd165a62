//go:build unix

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// flock locks a file until it is closed or the process ends.
func flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// funlock releases the lock, also if another process has the file open.
func funlock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }
