//go:build unix

package gateway

import (
	"errors"
	"net"
	"syscall"
)

// isGone reports whether the other side has closed a connection that is used again, or has sent
// what nobody has asked for. net/http learns of it a moment later, when its reader has run.
func isGone(conn net.Conn) (gone bool) {
	source, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return gone && err == nil
}
