package redistest

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func TestPortIsHeldWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill()
	if err := bindPlainly(s.port.Number()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("bind a dead server's port: %v, want address already in use", err)
	}
	s.Restart()
	number := s.port.Number()
	s.release()
	// a process that is being started may have a copy of it for a moment
	err := await(t, startLimit, func(context.Context) error { return bindPlainly(number) })
	if err != nil {
		t.Errorf("bind the port after its release: %v", err)
	}
}

// bindPlainly takes the port as a program does that knows nothing of us, and gives it back.
func bindPlainly(number int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
}
