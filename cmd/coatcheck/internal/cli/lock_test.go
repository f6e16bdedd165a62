package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// lockDoors are the two ways to locks: a running service, and a Redis.
func lockDoors(t *testing.T, test func(t *testing.T, at []string)) {
	t.Helper()
	t.Run("service", func(t *testing.T) { test(t, []string{"--server", serve(t).banner.URL}) })
	t.Run("redis", func(t *testing.T) { test(t, []string{"--redis", redistest.Start(t).URL()}) })
}

// runLocked starts a script under the lock deploy, held for an hour unless the flags say otherwise.
func runLocked(t *testing.T, at, flags []string, script string) *running {
	t.Helper()
	args := append([]string{"lock", "run", "--ttl", "1h"}, at...)
	return start(t, append(append(args, flags...), "deploy", "--", "sh", "-c", script)...)
}

// ready waits until a command has said that it is.
func (r *running) ready() {
	r.t.Helper()
	expect.Eventually(r.t, "the command of coatcheck "+strings.Join(r.cmd.Args[1:], " ")+" says that it is ready", func() bool {
		return strings.Contains(r.stdout.String(), "ready")
	})
}

func lockOf(t *testing.T, at []string) api.Lock {
	t.Helper()
	var shown api.Lock
	execute(t, nil, append([]string{"lock", "ls", "--json", "deploy"}, at...)...).exits(done).into(&shown)
	return shown
}

func TestLockRunTellsTheCommandItsLockAndReleasesItAfterwards(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		proceed := filepath.Join(t.TempDir(), "proceed")
		r := runLocked(t, at, []string{"--owner", "web-1"},
			`echo $LOCK_NAME; echo $LOCK_FENCE; echo $LOCK_NOT_AFTER_FILE; head -1 $LOCK_NOT_AFTER_FILE; echo ready; while [ ! -e '`+proceed+`' ]; do sleep 0.02; done; exit 3`)
		r.ready()
		shown := lockOf(t, at)
		expect.Equal(t, "mode of the lock in lock ls", shown.Mode, "exclusive")
		expect.MustEqual(t, "owners in lock ls", ownersOf(shown), []string{"web-1"})
		expect.NoError(t, "write the file", os.WriteFile(proceed, nil, 0o600))
		r.exits(3)
		told := strings.Fields(r.stdout.String())
		if len(told) != 5 {
			t.Fatalf("the command was told %q, want a name, a fence, a file, its first line, and its own word", told)
		}
		until, err := strconv.ParseInt(told[3], 10, 64)
		expect.Error(t, "first line of $LOCK_NOT_AFTER_FILE", err, nil)
		holder := shown.Holders[0]
		expect.Equal(t, "$LOCK_NAME", told[0], "deploy")
		expect.Equal(t, "$LOCK_FENCE", told[1], strconv.FormatInt(holder.Fence, 10))
		// redislock's script sets the key's TTL and ours tells the end, one after the other, so
		// that a busy machine has milliseconds between them. The command is stopped a margin before
		// the end.
		if most := holder.Until.Add(time.Second).UnixMilli(); until > most {
			t.Errorf("$LOCK_NOT_AFTER_FILE says %d, want no more than lock ls and the margin of a second, %d", until, most)
		}
		expect.Equal(t, "owners after the command's end", ownersOf(lockOf(t, at)), nil)
		if _, err := os.Stat(filepath.Dir(told[2])); !os.IsNotExist(err) {
			t.Errorf("the file's folder is left: %v", err)
		}
	})
}

// A command within two locks is told of the inner one.
func TestLockRunWithinLockRunTellsTheInnerLock(t *testing.T) {
	t.Parallel()
	at := []string{"--server", serve(t).banner.URL}
	inner := slices.Concat([]string{built(t), "lock", "run", "--ttl", "1h"}, at, []string{"inner", "--", "sh", "-c", `echo "$LOCK_NAME $LOCK_FENCE"`})
	r := start(t, slices.Concat([]string{"lock", "run", "--ttl", "1h"}, at, []string{"outer", "--", "sh", "-c", `echo "$LOCK_NAME $LOCK_FENCE"; exec "$@"`, "sh"}, inner)...)
	r.exits(done)
	told := strings.Fields(r.stdout.String())
	expect.MustEqual(t, "number of words that the commands were told", len(told), 4)
	expect.Equal(t, "$LOCK_NAME of both", []string{told[0], told[2]}, []string{"outer", "inner"})
	if told[1] == told[3] {
		t.Errorf("$LOCK_FENCE of both: got %s twice, want one each", told[1])
	}
}

// Each row is a script and the exit code that it ends with.
// eachRun runs a test with lock run, and with worker run.
func eachRun(t *testing.T, test func(t *testing.T, begin func(script string) *running)) {
	t.Helper()
	at := []string{"--server", serve(t).banner.URL}
	t.Run("lock", func(t *testing.T) {
		test(t, func(script string) *running { return runLocked(t, at, nil, script) })
	})
	t.Run("worker", func(t *testing.T) {
		test(t, func(script string) *running { return runUnderLease(t, at, nil, script) })
	})
}

func TestRunEndsAsItsCommandDoes(t *testing.T) {
	t.Parallel()
	eachRun(t, func(t *testing.T, begin func(string) *running) {
		for script, code := range map[string]int{
			`exit 0`: 0, `exit 1`: 1, `exit 75`: 75, `exit 255`: 255, `kill -TERM $$`: 128 + 15, `kill -KILL $$`: 128 + 9,
		} {
			r := begin(script)
			r.exits(code)
			lacks(t, "stderr of "+script, r.stderr.String(), "coatcheck")
		}
		r := begin(`cat; echo out; echo err >&2`)
		r.exits(0)
		expect.Equal(t, "stdout and stderr of the command", [2]string{r.stdout.String(), r.stderr.String()}, [2]string{"out\n", "err\n"})
	})
}

// The command gets each signal, and may take it or end with it.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	eachRun(t, func(t *testing.T, begin func(string) *running) {
		for name, signal := range map[string]syscall.Signal{
			"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
			"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
		} {
			r := begin(`trap 'echo got; exit 42' ` + name + `; echo ready; while :; do sleep 0.05; done`)
			r.ready()
			expect.NoError(t, "send SIG"+name, r.cmd.Process.Signal(signal))
			r.exits(42)
			expect.Contains(t, "stdout of the command after SIG"+name, r.stdout.String(), "got")
		}
		r := begin(`echo ready; sleep 600`)
		r.ready()
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		r.exits(128 + 15)
	})
}

// nohup has SIGHUP ignored, by lock run and worker run as well as by their commands, which outlive
// the terminal.
func TestCommandUnderNohupOutlivesTheTerminal(t *testing.T) {
	t.Parallel()
	p := serve(t)
	const script = `echo ready; while [ ! -e "$0" ]; do sleep 0.05; done; exit 42`
	for _, args := range [][]string{
		{"lock", "run", "--ttl", "1h", "--server", p.banner.URL, "deploy", "--"},
		{"worker", "run", "--server", p.banner.URL, "orders", "--"},
	} {
		t.Run(args[0], func(t *testing.T) {
			proceed := filepath.Join(t.TempDir(), "proceed")
			line := append([]string{"-c", `trap '' HUP; exec "$0" "$@"`, built(t)}, append(args, "sh", "-c", script, proceed)...)
			r := startCommand(t, exec.Command("sh", line...))
			r.ready()
			expect.NoError(t, "sending SIGHUP", r.cmd.Process.Signal(syscall.SIGHUP))
			expect.NoError(t, "letting the command go on", os.WriteFile(proceed, nil, 0o600))
			r.exits(42)
		})
	}
}

// A shell without job control has SIGINT ignored by what it starts in the background. So it stays,
// for lock run and worker run as well as for their commands.
func TestCommandInTheBackgroundOutlivesAnInterrupt(t *testing.T) {
	t.Parallel()
	p := serve(t)
	const script = `kill -INT $$; echo ready; while [ ! -e "$0" ]; do sleep 0.05; done; exit 42`
	for _, args := range [][]string{
		{"lock", "run", "--ttl", "1h", "--server", p.banner.URL, "deploy", "--"},
		{"worker", "run", "--server", p.banner.URL, "orders", "--"},
	} {
		t.Run(args[0], func(t *testing.T) {
			proceed := filepath.Join(t.TempDir(), "proceed")
			line := slices.Concat([]string{"-c", `trap '' INT; exec "$0" "$@"`, built(t)}, args, []string{"sh", "-c", script, proceed})
			r := startCommand(t, exec.Command("sh", line...))
			r.ready()
			expect.MustEqual(t, "error of sending SIGINT", r.cmd.Process.Signal(syscall.SIGINT), nil)
			expect.MustEqual(t, "error of letting the command go on", os.WriteFile(proceed, nil, 0o600), nil)
			r.exits(42)
		})
	}
}

// SIGQUIT ends the waiting as SIGINT does, and leaves no place in the queue.
func TestQuitEndsTheWaitForALock(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		one := runLocked(t, at, nil, `echo ready; sleep 600`)
		one.ready()
		two := runLocked(t, at, []string{"--wait", "1h"}, `echo ready`)
		expect.Eventually(t, "one waits", func() bool { return lockOf(t, at).Waiting == 1 })
		expect.MustEqual(t, "error of sending SIGQUIT", two.cmd.Process.Signal(syscall.SIGQUIT), nil)
		two.exits(tryLater)
		lacks(t, "stderr after SIGQUIT", two.stderr.String(), "goroutine")
		expect.Eventually(t, "none waits", func() bool { return lockOf(t, at).Waiting == 0 })
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		one.exits(128 + 15)
	})
}

// A lock that is held: who does not wait hears so, who waits gets it, and a signal ends the waiting
// and leaves no place behind.
func TestLockRunWithoutALockToBeHad(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		one := runLocked(t, at, nil, `echo ready; sleep 600`)
		one.ready()
		refused := func(what string, r *running, stderr ...string) {
			t.Helper()
			r.exits(tryLater, stderr...)
			expect.Equal(t, "stdout of the command that "+what, r.stdout.String(), "")
		}
		refused("does not wait", runLocked(t, at, nil, `echo ready`), "held by others: by \"", "since 2", "--wait", "coatcheck lock ls deploy "+at[0])
		refused("waits in vain", runLocked(t, at, []string{"--wait", "300ms"}, `echo ready`), "held by others: by \"", "since 2", "a longer --wait than 300ms")
		waiting := func(n int, last *running) {
			expect.Eventually(t, fmt.Sprintf("%d stand in line", n), func() bool {
				select {
				case <-last.ended:
					t.Fatalf("it ended while it was to wait: %s", last.stderr.String())
				default:
				}
				return lockOf(t, at).Waiting == n
			})
		}
		four := runLocked(t, at, []string{"--wait", "1h"}, `echo ready`)
		waiting(1, four)
		five := runLocked(t, at, []string{"--wait", "1h", "--owner", "five"}, `echo ready`)
		waiting(2, five)
		expect.Equal(t, "owner of the second place in lock ls", lockOf(t, at).Queue[1].Owner, "five")
		_ = four.cmd.Process.Signal(syscall.SIGTERM)
		refused("is asked to end while it waits", four)
		lacks(t, "advice to who has ended the wait", four.stderr.String(), "--wait")
		waiting(1, five)
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		five.exits(done)
		expect.Equal(t, "stdout of the command that waited longer than the holder ran", five.stdout.String(), "ready\n")
	})
}

func TestLockRunSharedAndWithPermits(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		for _, flags := range [][]string{{"--mode", "shared"}, {"--permits", "2"}} {
			one, two := runLocked(t, at, flags, `echo ready; sleep 600`), runLocked(t, at, flags, `echo ready; sleep 600`)
			one.ready()
			two.ready()
			third := func(flags ...string) result {
				t.Helper()
				return execute(t, nil, slices.Concat([]string{"lock", "run"}, at, flags, []string{"deploy", "--", "true"})...)
			}
			third().exits(tryLater) // an exclusive one beside them
			if flags[0] == "--mode" {
				third(flags...).exits(done)
			} else {
				third(flags...).exits(tryLater)
				third("--permits", "3").exits(failed, "it has 2")
			}
			for _, r := range []*running{one, two} {
				_ = r.cmd.Process.Signal(syscall.SIGTERM)
				r.exits(128 + 15)
			}
		}
	})
}

func TestLockLsAndBreak(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		run := func(args ...string) result {
			t.Helper()
			return execute(t, nil, append(args, at...)...)
		}
		expect.Equal(t, "lock ls of no locks", run("lock", "ls").exits(done).stdout, "No lock is held.\n")
		expect.Equal(t, "lock ls of a free lock", run("lock", "ls", "deploy").exits(done).stdout, "deploy has no holder.\n")
		run("lock", "break", "deploy", "--yes").exits(failed, "lock deploy has no holder")
		one := runLocked(t, at, []string{"--owner", "web-1", "--ttl", breakable}, `echo ready; sleep 600`)
		one.ready()
		two := runLocked(t, at, []string{"--owner", "web-2", "--wait", "1h"}, `echo $LOCK_FENCE`)
		expect.Eventually(t, "web-2 stands in line", func() bool { return lockOf(t, at).Waiting == 1 })
		first := lockOf(t, at).Holders[0].Fence
		fence := strconv.FormatInt(first, 10)
		expect.Eventually(t, "lock ls shows deploy, web-1 and its fence", func() bool {
			list := run("lock", "ls").stdout
			return strings.Contains(list, "deploy") && strings.Contains(list, "web-1") && strings.Contains(list, fence)
		})
		var list api.Locks
		run("lock", "ls", "--json").exits(done).into(&list)
		if len(list.Locks) != 1 {
			t.Fatalf("lock ls --json: got %+v, want one lock", list.Locks)
		}
		expect.Equal(t, "owners in lock ls --json", ownersOf(list.Locks[0]), []string{"web-1"})
		expect.Equal(t, "waiting in lock ls --json", list.Locks[0].Waiting, 1)
		run("lock", "ls", "deploy").exits(done).prints("web-1", "PLACE", "web-2")

		run("lock", "break", "deploy").exits(usage, "--fence "+fence+" --yes "+at[0])
		run("lock", "break", "deploy", "--fence", "5", "--yes").exits(failed, fence+" (web-1)")
		expect.Equal(t, "waiting after two breaks that were refused", lockOf(t, at).Waiting, 1)
		isLater(t, "lock break --yes", run("lock", "break", "deploy", "--yes").exits(done).stdout, first)
		two.exits(done)
		isLater(t, "$LOCK_FENCE of the next holder", two.stdout.String(), first)
		one.exits(tryLater, "was lost", "An operator broke it")
	})
}

// breakable is the TTL of a lock that is broken: the holder hears of that when it renews, after a
// third of it.
const breakable = "12s"

// ownersOf lists the owners of a lock's holders.
func ownersOf(shown api.Lock) (owners []string) {
	for _, holder := range shown.Holders {
		owners = append(owners, holder.Owner)
	}
	return owners
}

// isLater checks that a text is a fence, and larger than an earlier one.
func isLater(t *testing.T, what, text string, earlier int64) {
	t.Helper()
	if fence, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err != nil || fence <= earlier {
		t.Errorf("%s: got %q, want a fence larger than %d", what, text, earlier)
	}
}

func TestLockBreakOfSeveralHoldersNeedsAFence(t *testing.T) {
	t.Parallel()
	at := []string{"--redis", redistest.Start(t).URL()}
	one, two := runLocked(t, at, []string{"--mode", "shared"}, `echo ready; sleep 600`), runLocked(t, at, []string{"--mode", "shared"}, `echo ready; sleep 600`)
	one.ready()
	two.ready()
	fences := func() (fences []int64) {
		for _, holder := range lockOf(t, at).Holders {
			fences = append(fences, holder.Fence)
		}
		return fences
	}
	both := fences()
	if len(both) != 2 {
		t.Fatalf("fences in lock ls: got %d, want two", both)
	}
	second := strconv.FormatInt(both[1], 10)
	execute(t, nil, append([]string{"lock", "break", "deploy", "--yes"}, at...)...).exits(usage, second)
	expect.Equal(t, "fences after a break that names none", fences(), both)
	var broken api.LockBroken
	execute(t, nil, append([]string{"lock", "break", "deploy", "--yes", "--json", "--fence", second}, at...)...).exits(done).into(&broken)
	expect.Equal(t, "name in lock break --json", broken.Name, "deploy")
	if broken.Fence <= both[1] {
		t.Errorf("fence in lock break --json: got %d, want more than %d", broken.Fence, both[1])
	}
	expect.Equal(t, "fences after the break of "+second, fences(), both[:1])
}

// Each row is a command line and the exit code that scripts decide by.
func TestLockExitCodes(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	redis.Kill()
	for _, row := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"", done, ""},
		{"nonsense", usage, "nonsense"},
		{"run", usage, "after two dashes"},
		{"run deploy", usage, "after two dashes"},
		{"run deploy true", usage, "after two dashes"},
		{"run -- deploy true", usage, "after two dashes"},
		{"run de/ploy -- true", usage, "de/ploy"},
		{"run .. -- true", usage, "lock's name"},
		{"run deploy -- coatcheck-no-such-program", 127, "not found"},
		{"run --ttl 10ms deploy -- true", usage, "ttl"},
		{"run --ttl 25h deploy -- true", usage, "ttl"},
		{"run --wait -1s deploy -- true", usage, "wait"},
		{"run --mode write deploy -- true", usage, "mode"},
		{"run --permits 0 deploy -- true", usage, "permits"},
		{"run --permits 1000001 deploy -- true", usage, "permits"},
		{"run --permits 2 --mode shared deploy -- true", usage, "name one"},
		{"run --owner a/b deploy -- true", usage, "owner"},
		{"run --server http://h:1 --redis redis://h:1 deploy -- true", usage, "name one"},
		{"run --redis embedded: deploy -- true", usage, "--server"},
		{"run --server localhost deploy -- true", usage, "http://host:port"},
		{"run --server " + p.banner.URL + " deploy -- true", tryLater, "store-unavailable"},
		{"run --redis " + redis.URL() + " deploy -- true", tryLater, "refused"},
		{"ls a b", usage, "one lock"},
		{"ls a/b", usage, "a/b"},
		{"ls --server " + p.banner.URL, tryLater, "store-unavailable"},
		{"ls a --redis " + redis.URL(), tryLater, "refused"},
		{"break", usage, "one lock"},
		{"break a b", usage, "one lock"},
		{"break a --fence x", usage, "fence"},
		{"break a --fence -1", usage, "fence"},
		{"break a --yes --server " + p.banner.URL, tryLater, "store-unavailable"},
	} {
		execute(t, nil, append([]string{"lock"}, strings.Fields(row.args)...)...).exits(row.code, row.stderr)
	}
}
