//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
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
		"-test.run", "^TestRunPassesSignalsOn$", "-test.timeout", "5m")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("the tests of signals with SIGHUP and SIGINT ignored: %v\n%s", err, out)
	}
}

// A command ends with the reader of its output and at a request to end, whatever started lock run:
// systemd ignores SIGPIPE for all that it starts. HUP and INT are the ones that a shell ignores for
// what it starts, see TestCommandUnderNohupOutlivesTheTerminal.
func TestCommandHasTheDefaultsOfSignalsThatWereIgnored(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, args := range [][]string{
		{"lock", "run", "--ttl", "1h", "--server", p.banner.URL, "deploy", "--"},
		{"worker", "run", "--server", p.banner.URL, "orders", "--"},
	} {
		for name, number := range map[string]syscall.Signal{"PIPE": syscall.SIGPIPE, "TERM": syscall.SIGTERM} {
			t.Run(fmt.Sprintf("%s, %s", args[0], name), func(t *testing.T) {
				line := slices.Concat([]string{"-c", `trap '' PIPE TERM; exec "$0" "$@"`, built(t)}, args, []string{"sh", "-c", `kill -` + name + ` $$; exit 42`})
				startCommand(t, exec.Command("sh", line...)).exits(128 + int(number))
			})
		}
	}
}
