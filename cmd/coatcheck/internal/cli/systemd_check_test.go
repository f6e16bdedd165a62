//go:build check

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// TestUnitsAreGoodForSystemd has systemd read the units, and say how much of the system they could
// reach: from 0 to 100, where 100 is everything.
func TestUnitsAreGoodForSystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Fatalf("%v; make deps installs it", err)
	}
	folder := t.TempDir()
	for _, name := range units {
		file := filepath.Join(folder, filepath.Base(name))
		// systemd looks whether it is there
		text := strings.ReplaceAll(readRoot(t, name), "/usr/local/bin/coatcheck", os.Args[0])
		expect.NoError(t, "write the file", os.WriteFile(file, []byte(text), 0o600))
		for _, args := range [][]string{{"verify", "--man=no", file}, {"security", "--offline=true", "--no-pager", "--threshold=15", file}} {
			command := exec.CommandContext(t.Context(), "systemd-analyze", args...)
			// not the units that this machine has enabled: their faults are not ours
			command.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH=/usr/lib/systemd/system:/lib/systemd/system")
			out, err := command.CombinedOutput()
			if err != nil || args[0] == "verify" && len(out) > 0 {
				t.Errorf("%s: systemd-analyze %s: %v\n%s", name, args[0], err, out)
			}
		}
	}
}
