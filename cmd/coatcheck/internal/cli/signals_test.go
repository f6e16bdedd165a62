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

// caughtSignals is set for tests that began with signals ignored, which still end none.
const caughtSignals = "COATCHECK_TESTS_CATCH_SIGNALS"

// forgetIgnoredSignals has the tests begin as from a terminal: a process inherits what is ignored,
// as under nohup or in the background of a shell without job control, and tests send these signals
// to programs that they start. The tests begin once more for that, since the program, which runs
// within them as well, notes at its start what is ignored.
func forgetIgnoredSignals() {
	numbers := []os.Signal{syscall.SIGHUP, syscall.SIGINT}
	again, ignored := os.Getenv(caughtSignals) != "", slices.ContainsFunc(numbers, signal.Ignored)
	if again || ignored {
		signal.Notify(make(chan os.Signal, 1), numbers...) // caught, which no process inherits
	}
	_ = os.Unsetenv(caughtSignals) // it is of this process alone
	if ignored && !again {
		err := syscall.Exec(os.Args[0], os.Args, append(os.Environ(), caughtSignals+"=1"))
		panic(fmt.Sprintf("beginning once more: %v", err))
	}
}

// A tests' process under nohup in the background has SIGHUP and SIGINT ignored, and programs that
// it starts do not, also after commands that ran within it.
func TestTestsUnderNohupSendSignals(t *testing.T) {
	t.Parallel()
	again := exec.Command("sh", "-c", `trap '' HUP INT; exec "$0" "$@"`, os.Args[0],
		"-test.run", "^(TestOnceRunsACommandOnceForAKey|TestRunPassesSignalsOn)$", "-test.parallel", "1", "-test.count", "2",
		"-test.timeout", "5m")
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
