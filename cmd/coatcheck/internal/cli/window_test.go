package cli

import (
	"os/exec"
	"path/filepath"
	"testing"
)

const noFile = "the file with the end of its lease cannot be written"

// The folder for temporary files is not there. The command runs to its end.
func TestCommandRunsWithoutAFolderForTemporaryFiles(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, args := range [][]string{
		{"lock", "run", "--ttl", "1h", "--server", p.banner.URL, "deploy", "--"},
		{"worker", "run", "--server", p.banner.URL, "orders", "--"},
	} {
		t.Run(args[0], func(t *testing.T) {
			cmd := exec.Command("env", append([]string{
				"TMPDIR=" + filepath.Join(t.TempDir(), "absent"), "LOCK_NOT_AFTER_FILE=of another lock", "WORKER_NOT_AFTER_FILE=of another lease", built(t),
			}, append(args, "sh", "-c", `echo "[$LOCK_NOT_AFTER_FILE$WORKER_NOT_AFTER_FILE]"; exit 42`)...)...)
			r := startCommand(t, cmd)
			r.exits(42, noFile)
			lacks(t, "file that the command was told of", r.stdout.String(), map[string]string{"lock": "of another lock", "worker": "of another lease"}[args[0]])
		})
	}
}
