package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// lockDoors are the two ways to locks: a running service, and a Redis.
func lockDoors(t *testing.T, test func(t *testing.T, at []string)) {
	t.Helper()
	t.Run("service", func(t *testing.T) { test(t, []string{"--server", serve(t).banner.URL}) })
	t.Run("redis", func(t *testing.T) { test(t, []string{"--redis", redistest.Start(t).URL()}) })
}

func runLocked(t *testing.T, at, flags []string, script string) *running {
	t.Helper()
	args := append([]string{"lock", "run"}, at...)
	return start(t, append(append(args, flags...), "deploy", "--", "sh", "-c", script)...)
}

// ready waits until a command has said that it is.
func (r *running) ready() {
	r.t.Helper()
	eventually(r.t, "it is ready", func() bool { return strings.Contains(r.stdout.String(), "ready") })
}

func lockOf(t *testing.T, at []string) wire.Lock {
	t.Helper()
	code, stdout, stderr := coatcheck(t, nil, append([]string{"lock", "ls", "--json", "deploy"}, at...)...)
	var shown wire.Lock
	if err := json.Unmarshal([]byte(stdout), &shown); code != done || err != nil {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	return shown
}

func TestLockRunTellsTheCommandItsLockAndReleasesItAfterwards(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		proceed := filepath.Join(t.TempDir(), "proceed")
		r := runLocked(t, at, []string{"--owner", "web-1", "--ttl", "20s"},
			`echo $LOCK_NAME; echo $LOCK_FENCE; echo $LOCK_NOT_AFTER_FILE; head -1 $LOCK_NOT_AFTER_FILE; echo ready; while [ ! -e '`+proceed+`' ]; do sleep 0.02; done; exit 3`)
		r.ready()
		shown := lockOf(t, at)
		if shown.Mode != "exclusive" || len(shown.Holders) != 1 || shown.Holders[0].Owner != "web-1" {
			t.Fatalf("%+v", shown)
		}
		if err := os.WriteFile(proceed, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if code := r.code(); code != 3 {
			t.Fatalf("%d %s", code, r.stderr)
		}
		told := strings.Fields(r.stdout.String())
		until, _ := strconv.ParseInt(told[3], 10, 64)
		holder := shown.Holders[0]
		if told[0] != "deploy" || told[1] != strconv.FormatInt(holder.Fence, 10) || until > holder.Until.UnixMilli() {
			t.Errorf("%q of %+v", told, holder)
		}
		if shown := lockOf(t, at); len(shown.Holders) != 0 {
			t.Errorf("%+v", shown)
		}
		if _, err := os.Stat(filepath.Dir(told[2])); !os.IsNotExist(err) {
			t.Errorf("the file's folder is left: %v", err)
		}
	})
}

// Each row is a script and the exit code that it ends with.
func TestLockRunEndsAsItsCommandDoes(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, row := range []struct {
		script string
		code   int
	}{
		{`exit 0`, 0},
		{`exit 75`, 75},
		{`kill -TERM $$`, 128 + 15},
		{`kill -KILL $$`, 128 + 9},
		{`cat; echo out; echo err >&2`, 0},
	} {
		r := runLocked(t, []string{"--server", p.banner.URL}, nil, row.script)
		if code := r.code(); code != row.code || strings.Contains(r.stderr.String(), "coatcheck") {
			t.Errorf("%s: %d %s", row.script, code, r.stderr)
		}
		if row.script[:3] == "cat" && (r.stdout.String() != "out\n" || r.stderr.String() != "err\n") {
			t.Errorf("%q %q", r.stdout, r.stderr)
		}
	}
}

// Each row is a signal that lock run gets and what the command makes of it.
func TestLockRunPassesSignalsOn(t *testing.T) {
	p := serve(t)
	for _, row := range []struct {
		signal syscall.Signal
		trap   string
	}{{syscall.SIGINT, "INT"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}} {
		t.Run(row.trap, func(t *testing.T) {
			r := runLocked(t, []string{"--server", p.banner.URL}, nil, `trap 'echo got; exit 42' `+row.trap+`; echo ready; while :; do sleep 0.05; done`)
			r.ready()
			if err := r.cmd.Process.Signal(row.signal); err != nil {
				t.Fatal(err)
			}
			if code := r.code(); code != 42 || !strings.Contains(r.stdout.String(), "got") {
				t.Errorf("%d %s %s", code, r.stdout, r.stderr)
			}
		})
	}
}

// A lock that is held: who does not wait hears so, who waits gets it, and a signal ends the waiting and leaves no place behind.
func TestLockRunWithoutALockToBeHad(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		one := runLocked(t, at, nil, `echo ready; sleep 60`)
		one.ready()
		two := runLocked(t, at, nil, `echo ready`)
		if code := two.code(); code != tryLater || two.stdout.String() != "" || !strings.Contains(two.stderr.String(), "held by others, since 2") || !strings.Contains(two.stderr.String(), "--wait") {
			t.Errorf("%d %s", code, two.stderr)
		}
		three := runLocked(t, at, []string{"--wait", "300ms"}, `echo ready`)
		if code := three.code(); code != tryLater || three.stdout.String() != "" {
			t.Errorf("%d %s", code, three.stderr)
		}
		waiting := func(n int) {
			eventually(t, fmt.Sprintf("%d stand in line", n), func() bool { return lockOf(t, at).Waiting == n })
		}
		four := runLocked(t, at, []string{"--wait", "1m"}, `echo ready`)
		waiting(1)
		five := runLocked(t, at, []string{"--wait", "1m", "--owner", "five"}, `echo ready`)
		waiting(2)
		if queue := lockOf(t, at).Queue; queue[1].Owner != "five" {
			t.Errorf("%+v", queue)
		}
		_ = four.cmd.Process.Signal(syscall.SIGTERM)
		if code := four.code(); code != tryLater || four.stdout.String() != "" {
			t.Errorf("%d %s", code, four.stderr)
		}
		waiting(1)
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		if code := five.code(); code != done || five.stdout.String() != "ready\n" {
			t.Errorf("%d %s", code, five.stderr)
		}
	})
}

func TestLockRunSharedAndWithPermits(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		for _, flags := range [][]string{{"--mode", "shared"}, {"--permits", "2"}} {
			one, two := runLocked(t, at, flags, `echo ready; sleep 60`), runLocked(t, at, flags, `echo ready; sleep 60`)
			one.ready()
			two.ready()
			if r := runLocked(t, at, nil, `echo ready`); r.code() != tryLater {
				t.Errorf("%v beside an exclusive one: %s", flags, r.stderr)
			}
			if r := runLocked(t, at, flags, `echo ready`); (r.code() == done) != (flags[0] == "--mode") {
				t.Errorf("%v a third: %s", flags, r.stderr)
			}
			if flags[0] == "--permits" {
				if r := runLocked(t, at, []string{"--permits", "3"}, `echo ready`); r.code() != failed || !strings.Contains(r.stderr.String(), "it has 2") {
					t.Errorf("another number of permits: %s", r.stderr)
				}
			}
			for _, r := range []*running{one, two} {
				_ = r.cmd.Process.Signal(syscall.SIGTERM)
				if code := r.code(); code != 128+15 {
					t.Errorf("%d %s", code, r.stderr)
				}
			}
		}
	})
}

func TestLockLsAndBreak(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		run := func(args ...string) (int, string, string) { return coatcheck(t, nil, append(args, at...)...) }
		if code, stdout, stderr := run("lock", "ls"); code != done || stdout != "No lock is held.\n" {
			t.Errorf("%d %s %s", code, stdout, stderr)
		}
		if code, stdout, _ := run("lock", "ls", "deploy"); code != done || stdout != "Nobody holds deploy.\n" {
			t.Errorf("%d %s", code, stdout)
		}
		if code, _, stderr := run("lock", "break", "deploy", "--yes"); code != failed || !strings.Contains(stderr, "nobody holds lock deploy") {
			t.Errorf("%d %s", code, stderr)
		}
		one := runLocked(t, at, []string{"--owner", "web-1", "--ttl", "3s"}, `echo ready; sleep 60`)
		one.ready()
		two := runLocked(t, at, []string{"--owner", "web-2", "--wait", "1m"}, `echo $LOCK_FENCE`)
		eventually(t, "it stands in line", func() bool { return lockOf(t, at).Waiting == 1 })
		shown := lockOf(t, at)
		fence := strconv.FormatInt(shown.Holders[0].Fence, 10)
		eventually(t, "it is listed", func() bool {
			_, stdout, _ := run("lock", "ls")
			return strings.Contains(stdout, "deploy") && strings.Contains(stdout, "web-1") && strings.Contains(stdout, fence)
		})
		var list wire.Locks
		if _, stdout, _ := run("lock", "ls", "--json"); json.Unmarshal([]byte(stdout), &list) != nil || len(list.Locks) != 1 || list.Locks[0].Holders[0].Owner != "web-1" || list.Locks[0].Waiting != 1 {
			t.Errorf("%s", stdout)
		}
		if code, stdout, _ := run("lock", "ls", "deploy"); code != done || !strings.Contains(stdout, "web-1") || !strings.Contains(stdout, "PLACE") || !strings.Contains(stdout, "web-2") {
			t.Errorf("%d %s", code, stdout)
		}
		if code, _, stderr := run("lock", "break", "deploy"); code != usage || !strings.Contains(stderr, "--fence "+fence+" --yes") || lockOf(t, at).Waiting != 1 {
			t.Errorf("%d %s", code, stderr)
		}
		if code, _, stderr := run("lock", "break", "deploy", "--fence", "5", "--yes"); code != failed || !strings.Contains(stderr, fence+" (web-1)") {
			t.Errorf("%d %s", code, stderr)
		}
		code, stdout, stderr := run("lock", "break", "deploy", "--yes")
		minted, err := strconv.ParseInt(strings.TrimSpace(stdout), 10, 64)
		if code != done || err != nil || minted <= shown.Holders[0].Fence {
			t.Errorf("%d %s %s", code, stdout, stderr)
		}
		if code := two.code(); code != done {
			t.Errorf("%d %s", code, two.stderr)
		}
		if after, err := strconv.ParseInt(strings.TrimSpace(two.stdout.String()), 10, 64); err != nil || after <= shown.Holders[0].Fence {
			t.Errorf("the next one's fence %s after %s", two.stdout, fence)
		}
		if code := one.code(); code != tryLater || !strings.Contains(one.stderr.String(), "was lost") || !strings.Contains(one.stderr.String(), "Somebody broke it") {
			t.Errorf("%d %s", code, one.stderr)
		}
	})
}

func TestLockBreakOfSeveralHoldersNeedsAFence(t *testing.T) {
	at := []string{"--redis", redistest.Start(t).URL()}
	one, two := runLocked(t, at, []string{"--mode", "shared"}, `echo ready; sleep 60`), runLocked(t, at, []string{"--mode", "shared"}, `echo ready; sleep 60`)
	one.ready()
	two.ready()
	code, _, stderr := coatcheck(t, nil, append([]string{"lock", "break", "deploy", "--yes"}, at...)...)
	holders := lockOf(t, at).Holders
	if code != usage || len(holders) != 2 || !strings.Contains(stderr, strconv.FormatInt(holders[1].Fence, 10)) {
		t.Errorf("%d %s", code, stderr)
	}
	code, stdout, stderr := coatcheck(t, nil, append([]string{"lock", "break", "deploy", "--yes", "--json", "--fence", strconv.FormatInt(holders[1].Fence, 10)}, at...)...)
	var broken wire.LockBroken
	if err := json.Unmarshal([]byte(stdout), &broken); code != done || err != nil || broken.Name != "deploy" || broken.Fence <= holders[1].Fence {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if left := lockOf(t, at).Holders; len(left) != 1 || left[0].Fence != holders[0].Fence {
		t.Errorf("%+v", left)
	}
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
		{"run", usage, "behind two dashes"},
		{"run deploy", usage, "behind two dashes"},
		{"run deploy true", usage, "behind two dashes"},
		{"run -- deploy true", usage, "behind two dashes"},
		{"run de/ploy -- true", usage, "de/ploy"},
		{"run .. -- true", usage, "lock's name"},
		{"run deploy -- coatcheck-no-such-program", usage, "not found"},
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
		code, _, stderr := coatcheck(t, nil, append([]string{"lock"}, strings.Fields(row.args)...)...)
		if code != row.code || !strings.Contains(stderr, row.stderr) {
			t.Errorf("%v: %d %s", row.args, code, stderr)
		}
	}
}
