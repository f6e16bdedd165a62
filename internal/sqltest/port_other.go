//go:build !linux

package sqltest

import "net"

// port is a loopback port that was free a moment ago.
type port struct{ number int }

func reservePort() (*port, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return &port{number: listener.Addr().(*net.TCPAddr).Port}, nil
}

func (p *port) release() {}
