package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/proctest"
)

const helperVariable = "REDISTEST_HELPER"

// TestServerDiesWithAKilledTestBinary runs this test binary once more, with a server, and kills it. What tells that the
// server is gone is its port: until somebody collects its exit, its process id stays.
func TestServerDiesWithAKilledTestBinary(t *testing.T) {
	if os.Getenv(helperVariable) != "" {
		fmt.Printf("server %s\n", Start(t).Addr())
		select {}
	}
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^TestServerDiesWithAKilledTestBinary$")
	// The helper has no chance to remove its files, so they are to lie in a directory of ours.
	cmd.Env = append(os.Environ(), helperVariable+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	helper, err := proctest.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(helper.Kill)

	addr := ""
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		addr, _ = strings.CutPrefix(lines.Text(), "server ")
	}
	dial := func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial(t.Context()); err != nil {
		t.Fatalf("the helper's server at %q: %v", addr, err)
	}
	helper.Kill()
	err = await(t, startLimit, func(ctx context.Context) error {
		if dial(ctx) == nil {
			return fmt.Errorf("the server at %s outlives its test binary", addr)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
