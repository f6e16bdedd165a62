package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

const helperVariable = "REDISTEST_HELPER"

// These tests run this test binary once more, with a server, and kill it. Its port shows that the
// server is gone: its process id stays until its exit is collected.

func TestServerDiesWithAKilledTestBinary(t *testing.T) {
	if os.Getenv(helperVariable) != "" {
		fmt.Printf("server %s\n", Start(t).Addr())
		select {}
	}
	t.Parallel()
	diesWithItsBinary(t)
}

func TestSharedServerDiesWithAKilledTestBinaryAndLeavesNoFiles(t *testing.T) {
	if os.Getenv(helperVariable) != "" {
		fmt.Printf("server %s\n", strings.TrimPrefix(Shared(t).URL, "redis://"))
		select {}
	}
	t.Parallel()
	dir := diesWithItsBinary(t)
	expect.Eventually(t, "the files of the shared server are removed", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "redistest*"))
		return err == nil && len(left) == 0
	})
}

// diesWithItsBinary runs the calling test alone in another process, kills that and waits for the
// end of the server that it started. It returns the directory for its files, which it had no chance
// to remove.
func diesWithItsBinary(t *testing.T) (files string) {
	t.Helper()
	files = t.TempDir()
	binary, err := os.Executable()
	expect.NoError(t, "path of this test binary", err)
	cmd := exec.Command(binary, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), helperVariable+"=1", "TMPDIR="+files)
	out, err := cmd.StdoutPipe()
	expect.NoError(t, "output of the helper", err)
	helper, err := proctest.Start(cmd, syscall.SIGKILL)
	expect.NoError(t, "start of the helper", err)
	t.Cleanup(helper.Kill)

	addr := ""
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		addr, _ = strings.CutPrefix(lines.Text(), "server ")
	}
	dial := func() error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial(); err != nil {
		t.Fatalf("the helper's server at %q: %v", addr, err)
	}
	helper.Kill()
	expect.Eventually(t, "the server at "+addr+" ends with its test binary", func() bool { return dial() != nil })
	return files
}
