package proctest

import (
	"net"
	"strconv"
	"testing"
)

// ClosedPort is a loopback address, host:port, at which nothing listens while the test runs, and at
// which only the test's own servers may begin to.
func ClosedPort(t *testing.T) (address string) {
	t.Helper()
	port, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port.Number()))
}
