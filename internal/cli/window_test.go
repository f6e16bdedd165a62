package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/logtest"
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

// The folder for temporary files is removed while a command runs. That ends nothing, and the guard
// is told of a new end of the window all the same.
func TestFolderForTemporaryFilesIsRemovedWhileACommandRuns(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(folder, "temporary"))
	expect.MustEqual(t, "error of making a folder", os.Mkdir(os.Getenv("TMPDIR"), 0o700), nil)
	began := time.Now()
	lease := &movingTenure{ends: make(chan window, 1), last: window{began.Add(time.Hour), sinceBoot() + time.Hour}}
	ready, proceed, warnings := filepath.Join(folder, "ready"), filepath.Join(folder, "proceed"), &logtest.Text{}
	ended := make(chan error, 1)
	go func() {
		_, err := supervise(lease, []string{"sh", "-c", `echo >"$0"; while [ ! -e "$1" ]; do sleep 0.02; done; echo >"$0"; sleep 600`, ready, proceed}, allowed(time.Hour, 0), nil, warnings)
		ended <- err
	}()
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	expect.Eventually(t, "the command runs", func() bool { return there(ready) })
	expect.MustEqual(t, "error of removing the folder", os.RemoveAll(os.Getenv("TMPDIR")), nil)
	lease.ends <- window{began.Add(2 * time.Hour), sinceBoot() + 2*time.Hour}
	expect.Eventually(t, "it is warned of the file", func() bool { return strings.Contains(warnings.String(), noFile) })
	_ = os.Remove(ready) // the command writes it
	expect.MustEqual(t, "error of letting the command go on", os.WriteFile(proceed, nil, 0o600), nil)
	expect.Eventually(t, "the command goes on after the warning", func() bool { return there(ready) })

	lease.ends <- window{began.Add(3 * time.Hour), sinceBoot()} // its time is over now
	err := <-ended
	if _, later := errors.AsType[laterError](err); !later {
		t.Errorf("supervise, whose window ended: got error %v, want one of a lost lease", err)
	}
	expect.Equal(t, "number of warnings", strings.Count(warnings.String(), noFile), 1)
}

// movingTenure is a lease whose window moves as a test says.
type movingTenure struct {
	ends chan window
	last window
}

func (*movingTenure) Context() context.Context        { return context.Background() }
func (*movingTenure) environment(windowFile) []string { return os.Environ() }
func (*movingTenure) gone(error) bool                 { return false }
func (*movingTenure) lost(cause error) error          { return cause }

func (m *movingTenure) window() (window, error) {
	select {
	case m.last = <-m.ends:
	default:
	}
	return m.last, nil
}
