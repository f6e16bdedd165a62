//go:build check && linux

package servers

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// The longest lease, and how far clocks may be apart: after a loss nothing is granted for as long
// as both.
const (
	ttl  = 2 * time.Second
	skew = 500 * time.Millisecond
)

// startService starts a service on a Redis, and returns a client of it.
func startService(t *testing.T, redis string) *client.Client {
	t.Helper()
	return serve(t, exec.CommandContext(context.Background(), chaostest.Coatcheck(t), arguments(redis)...))
}

func arguments(redis string) []string {
	return []string{
		"serve", "--redis", redis, "--listen", "127.0.0.1:0", "--json", "--access-log", "none", "--id-pool=",
		"--lock-after-loss", "wait", "--lock-longest-ttl", ttl.String(), "--worker-longest-ttl", ttl.String(), "--clock-skew", skew.String(),
	}
}

// serve starts a command that is a service, and returns a client when it says where it listens.
func serve(t *testing.T, command *exec.Cmd) *client.Client {
	t.Helper()
	service, _ := serveProcess(t, command)
	return service
}

// serveProcess is serve, with the process.
func serveProcess(t *testing.T, command *exec.Cmd) (*client.Client, *chaostest.Process) {
	t.Helper()
	service := chaostest.Serve(t, command)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: service.URL, HTTPClient: &http.Client{Transport: transport}})
	expect.NoError(t, "client.New", err)
	return c, service.Process
}

// startWith starts a Redis by a shell that does something first, and then is the server.
func startWith(t *testing.T, first string, args ...string) *redistest.Server {
	t.Helper()
	binary := os.Getenv("REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	script := filepath.Join(t.TempDir(), "redis-server")
	text := "#!/bin/sh\n: \"${PROGRAM:=" + binary + "}\"\n" + first + "\nexec \"$PROGRAM\" \"$@\"\n"
	expect.NoError(t, "os.WriteFile", os.WriteFile(script, []byte(text), 0o700))
	t.Setenv("REDIS_SERVER", script)
	return redistest.Start(t, args...)
}
