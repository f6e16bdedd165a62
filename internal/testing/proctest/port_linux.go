package proctest

import (
	"fmt"
	"os"
	"syscall"
)

// Port is a loopback port that stays ours while a server on it starts, dies and starts again.
//
// It is held by a socket that is bound and never listens. Linux lets a second socket bind and
// listen there when both set SO_REUSEADDR, as Redis, MariaDB and PostgreSQL do, but gives the
// number to no process that asks for a free port. It also keeps a client that dials a dead server
// from being given that very port as its own and so reaching itself, which would leave the server
// no port to come back to.
type Port struct {
	number int
	fd     int
}

// Reserve finds a free port on 127.0.0.1 and holds it until Release.
func Reserve() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	number, err := bindAnyPort(fd)
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &Port{number: number, fd: fd}, nil
}

func bindAnyPort(fd int) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}

// Number is the port.
func (p *Port) Number() int { return p.number }

// Release gives the port back. It may be called once.
func (p *Port) Release() {
	_ = syscall.Close(p.fd)
}
