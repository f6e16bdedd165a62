package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Two nodes whose clocks differ start the same short job: the second one finds the lock held.
func TestLockIsHeldForAtLeastAsLongAsIsAsked(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		run := func(flags ...string) result {
			t.Helper()
			return execute(t, nil, slices.Concat([]string{"lock", "run"}, at, flags)...)
		}
		for _, script := range []string{"exit 0", "exit 3"} {
			code, _ := strconv.Atoi(script[5:])
			run("--at-least", "1h", "deploy", "--", "sh", "-c", script).exits(code)
			shown := lockOf(t, at)
			expect.MustEqual(t, "number of holders after "+script, len(shown.Holders), 1)
			if left := shown.Holders[0].Until.Sub(shown.ServerTime.Time); left < 55*time.Minute || left > time.Hour {
				t.Errorf("after %s the lock is held for another %v, want an hour, less what the command took", script, left)
			}
			run("deploy", "--", "true").exits(tryLater, "held by others")
			execute(t, nil, slices.Concat([]string{"lock", "break", "deploy", "--yes"}, at)...).exits(done)
		}
		run("--at-least", "1ms", "deploy", "--", "sleep", "0.01").exits(done)
		expect.Equal(t, "owners after a command that took longer", ownersOf(lockOf(t, at)), nil)
		noProgram := filepath.Join(t.TempDir(), "no-program")
		expect.MustEqual(t, "error of writing a file", os.WriteFile(noProgram, []byte("\x00\x01"), 0o700), nil)
		run("--at-least", "1h", "deploy", "--", noProgram).exits(126, "could not be started")
		expect.Equal(t, "owners after a command that did not begin", ownersOf(lockOf(t, at)), nil)
	})
}

// A wrapper can tell a lock that others hold from a Redis that is away, and from a lock that was
// lost.
func TestLockThatOthersHoldHasAnExitCodeOfItsOwn(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		one := runLocked(t, at, []string{"--ttl", breakable, "--conflict-exit-code", "9"}, `echo ready; sleep 600`)
		one.ready()
		for code, flags := range map[int][]string{tryLater: nil, 9: {"--conflict-exit-code", "9"}, 0: {"--conflict-exit-code", "0"}, 3: {"--conflict-exit-code", "3", "--wait", "100ms"}} {
			runLocked(t, at, flags, `echo ready`).exits(code, "held by others")
		}
		waiting := runLocked(t, at, []string{"--conflict-exit-code", "9", "--wait", "1h"}, `echo ready`)
		expect.Eventually(t, "one waits", func() bool { return lockOf(t, at).Waiting == 1 })
		_ = waiting.cmd.Process.Signal(syscall.SIGTERM)
		waiting.exits(tryLater)
		execute(t, nil, slices.Concat([]string{"lock", "break", "deploy", "--yes"}, at)...).exits(done)
		one.exits(tryLater, "was lost")
	})
	execute(t, nil, "lock", "run", "--redis", "redis://127.0.0.1:1", "--conflict-exit-code", "9", "deploy", "--", "true").exits(tryLater)
	execute(t, nil, "lock", "run", "--conflict-exit-code", "256", "deploy", "--", "true").exits(usage, "from 0 to 255")
}

// A lock that was broken is another's at once, so its holder's command has no time left to end by
// itself, however long its grace.
func TestCommandIsKilledWhenItsLockIsBroken(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		r := runLocked(t, at, []string{"--ttl", breakable}, `trap 'echo asked to end' TERM; echo ready; while :; do sleep 0.05; done`)
		r.ready()
		execute(t, nil, append([]string{"lock", "break", "deploy", "--yes"}, at...)...).exits(done)
		r.exits(tryLater, "An operator broke it")
		lacks(t, "stdout of the command whose lock was broken", r.stdout.String(), "asked")
	})
}
