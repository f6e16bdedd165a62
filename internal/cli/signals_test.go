//go:build unix

package cli

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// forgetIgnoredSignals has the tests begin as from a terminal: a process inherits what is ignored,
// as under nohup or in the background of a shell without job control, and tests send these signals
// to programs that they start. Signals that were ignored still end no test.
func forgetIgnoredSignals() {
	for _, number := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(number) {
			signal.Notify(make(chan os.Signal, 1), number) // caught, which no process inherits
		}
	}
}

// A tests' process under nohup in the background has SIGHUP and SIGINT ignored, and programs that
// it starts do not.
func TestTestsUnderNohupSendSignals(t *testing.T) {
	t.Parallel()
	again := exec.Command("sh", "-c", `trap '' HUP INT; exec "$0" "$@"`, os.Args[0],
		"-test.run", "^(TestLockRunPassesSignalsOn|TestWorkerRunPassesSignalsOn)$", "-test.timeout", "5m")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("the tests of signals with SIGHUP and SIGINT ignored: %v\n%s", err, out)
	}
}
