//go:build check && linux

package servers

import (
	"bufio"
	"context"
	"encoding/json"
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
	return serve(t, exec.CommandContext(context.Background(), built.Path(t), arguments(redis)...))
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
	log := &chaostest.Tail{}
	command.Stderr = log
	stdout, write, err := os.Pipe()
	expect.NoError(t, "os.Pipe", err)
	defer stdout.Close()
	command.Stdout = write
	process := chaostest.Start(t, command)
	_ = write.Close()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of a service ends:\n%s", log)
		}
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var banner struct {
		URL string `json:"url"`
	}
	if err == nil {
		err = json.Unmarshal(line, &banner)
	}
	if err != nil {
		t.Fatalf("no banner, but %q: %v\n%s", line, err, log)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: banner.URL, HTTPClient: &http.Client{Transport: transport}})
	expect.NoError(t, "client.New", err)
	return c, process
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
