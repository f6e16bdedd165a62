// Command named is coatcheck for tests in which the name of a server moves: it asks the server of
// names at COATCHECK_TEST_NAMES (host:port, UDP) instead of the machine's.
package main

import (
	"context"
	"net"
	"os"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/cli"
)

func main() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", os.Getenv("COATCHECK_TEST_NAMES"))
	}}
	os.Exit(cli.Main())
}
