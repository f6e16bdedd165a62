//go:build !linux

package redistest

import (
	"fmt"
	"net"
)

// port is a loopback port that was free a moment ago. Somebody else may take it before the server does, which the
// server's start then notices.
type port struct {
	number int
}

// reservePort finds a free port on 127.0.0.1.
func reservePort() (*port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	defer l.Close()
	return &port{number: l.Addr().(*net.TCPAddr).Port}, nil
}

// release does nothing: the port is not held.
func (p *port) release() {}
