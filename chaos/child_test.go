//go:build check

package chaos

import (
	"bufio"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// child is a process that a test has started.
type child struct {
	*chaostest.Process

	url    string // where it answers
	stderr *chaostest.Tail
	killed atomic.Bool // by the test: requests to it may go without an answer
}

// launch starts a process and waits for its first line on standard output, which urlOf turns into
// its address.
func launch(t testing.TB, urlOf func(line []byte) string, env []string, binary string, args ...string) *child {
	t.Helper()
	c := &child{stderr: &chaostest.Tail{}}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = c.stderr
	stdout, err := cmd.StdoutPipe()
	expect.NoError(t, "StdoutPipe", err)
	c.Process = chaostest.Start(t, cmd)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if c.url = urlOf(line); err != nil || c.url == "" {
		c.Kill()
		t.Fatalf("%s %v does not come up: %q, %v\n%s", binary, args, line, err, c.stderr)
	}
	return c
}

// Kill ends the process at once, stopped or not, as kill -9 does.
func (c *child) Kill() {
	c.killed.Store(true)
	c.Process.Kill()
}
