//go:build !linux

package proctest

import (
	"fmt"
	"net"
)

// Port is a loopback port that was free a moment ago. Another process may take it before the server
// does, which the server's start then notices.
type Port struct {
	number int
}

// Reserve finds a free port on 127.0.0.1.
func Reserve() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	defer l.Close()
	return &Port{number: l.Addr().(*net.TCPAddr).Port}, nil
}

// Number is the port.
func (p *Port) Number() int { return p.number }

// Release does nothing: the port is not held.
func (p *Port) Release() {}
