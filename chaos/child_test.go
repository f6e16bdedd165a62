//go:build check

package chaos

import (
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// child is a process that a test has started.
type child struct {
	*chaostest.Service

	killed atomic.Bool // by the test: requests to it may go without an answer
}

// launch starts a process, and returns when it says where it answers.
func launch(t testing.TB, env []string, binary string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	return &child{Service: chaostest.Serve(t, cmd)}
}

// Kill ends the process at once, stopped or not, as kill -9 does.
func (c *child) Kill() {
	c.killed.Store(true)
	c.Process.Kill()
}
