package sqltest

import (
	"fmt"
	"syscall"
)

// port is a loopback port that stays the server's while it is down: it is bound by a socket of ours that never listens. With SO_REUSEADDR, which both servers set, a
// second socket may listen there, but nobody who asks for any free port is given it, clients that dial included.
type port struct{ number, socket int }

func reservePort() (*port, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &port{socket: socket}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := syscall.SetsockoptInt(p.socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := syscall.Bind(p.socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	bound, err := syscall.Getsockname(p.socket)
	if err != nil {
		return err
	}
	p.number = bound.(*syscall.SockaddrInet4).Port
	return nil
}

func (p *port) release() { _ = syscall.Close(p.socket) }
