//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const noFile = "the file with the end of its lease cannot be written"

// errLost is what a lease of the tests says of a command that was stopped.
var errLost = errors.New("the lease was lost")

// The folder for temporary files is removed while a command runs. That ends nothing, and the guard
// is told of a new end of the window all the same.
func TestFolderForTemporaryFilesIsRemovedWhileACommandRuns(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(folder, "temporary"))
	expect.MustEqual(t, "error of making a folder", os.Mkdir(os.Getenv("TMPDIR"), 0o700), nil)
	began := time.Now()
	lease := &movingLease{ends: make(chan Window, 1), last: Window{began.Add(time.Hour), SinceBoot() + time.Hour}}
	ready, proceed, warnings := filepath.Join(folder, "ready"), filepath.Join(folder, "proceed"), &logtest.Text{}
	ended := make(chan error, 1)
	go func() {
		_, err := Run(lease, []string{"sh", "-c", `echo >"$0"; while [ ! -e "$1" ]; do sleep 0.02; done; echo >"$0"; sleep 600`, ready, proceed}, Allowed(time.Hour, 0), nil, warnings)
		ended <- err
	}()
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	expect.Eventually(t, "the command runs", func() bool { return there(ready) })
	expect.MustEqual(t, "error of removing the folder", os.RemoveAll(os.Getenv("TMPDIR")), nil)
	lease.ends <- Window{began.Add(2 * time.Hour), SinceBoot() + 2*time.Hour}
	expect.Eventually(t, "it is warned of the file", func() bool { return strings.Contains(warnings.String(), noFile) })
	_ = os.Remove(ready) // the command writes it
	expect.MustEqual(t, "error of letting the command go on", os.WriteFile(proceed, nil, 0o600), nil)
	expect.Eventually(t, "the command goes on after the warning", func() bool { return there(ready) })

	lease.ends <- Window{began.Add(3 * time.Hour), SinceBoot()} // its time is over now
	expect.Error(t, "Run, whose window ended", <-ended, errLost)
	expect.Equal(t, "number of warnings", strings.Count(warnings.String(), noFile), 1)
}

// movingLease is a lease whose window moves as a test says.
type movingLease struct {
	ends chan Window
	last Window
}

func (*movingLease) Context() context.Context    { return context.Background() }
func (*movingLease) Environment(string) []string { return os.Environ() }
func (*movingLease) Gone(error) bool             { return false }
func (*movingLease) TellsEnd() bool              { return true }
func (*movingLease) Lost(error) error            { return errLost }

func (m *movingLease) Window() (Window, error) {
	select {
	case m.last = <-m.ends:
	default:
	}
	return m.last, nil
}

// Who kills the command is not always faster than the guard, which sees its child end and may still
// report that. Each row is what the guard reports then.
func TestVerdictOnACommandThatWasKilled(t *testing.T) {
	for _, row := range []struct {
		report report
		killed bool
		code   int
		err    error
	}{
		{report{Ended: true, Code: 128 + 9}, true, 0, errLost},
		{report{Ended: true, Code: 128 + 9, Cut: true}, false, 0, errLost},
		{report{}, true, 0, errLost},
		{report{Ended: true, Code: 128 + 9}, false, 128 + 9, nil}, // by another process
		{report{Ended: true, Code: 3}, true, 3, nil},              // just before
		{report{Failed: errTooLate.Error(), Cut: true}, false, 0, errLost},
	} {
		s := &supervision{Lease: &movingLease{}, outcome: row.report, killed: row.killed, cause: errors.New("broken")}
		code, err := s.verdict()
		what := fmt.Sprintf("verdict on the report %+v, killed %v", row.report, row.killed)
		expect.Error(t, what, err, row.err)
		expect.Equal(t, what+": exit code", code, row.code)
	}
}

// A guard takes the file away when its command and their group have ended, maybe in the middle of a
// renewal. No command lacks it then.
func TestNoWarningOfTheFileOnceTheCommandHasEnded(t *testing.T) {
	command := exec.Command("true")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	expect.MustEqual(t, "error of a command that ends", command.Run(), nil)
	for what, group := range map[string]int{"ended": command.Process.Pid, "is not known to have begun": 0} {
		lifeline, order, err := os.Pipe()
		expect.MustEqual(t, "error of making a pipe", err, nil)
		warnings, now := &logtest.Text{}, time.Now()
		s := &supervision{
			Lease: &movingLease{last: Window{now.Add(time.Hour), SinceBoot() + time.Hour}}, guarded: &guarded{order: order},
			file: windowFile(filepath.Join(t.TempDir(), "removed", windowName)), window: Window{now, SinceBoot()}, group: group, warnings: warnings,
		}
		s.refresh()
		expect.Equal(t, "warnings about a command that "+what, warnings.String(), "")
		expect.Equal(t, "end of the window of a command that "+what, s.window.Server, now.Add(time.Hour))
		_ = lifeline.Close()
		_ = order.Close()
	}
}
