package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// doors are the two ways to pools: a running service, and a Redis.
func doors(t *testing.T, test func(t *testing.T, at []string)) {
	t.Helper()
	t.Run("service", func(t *testing.T) { test(t, []string{"--server", serve(t).banner.URL}) })
	t.Run("redis", func(t *testing.T) {
		test(t, []string{"--redis", redistest.Start(t).URL(), "--new-pools", "trust"})
	})
}

func runUnderLease(t *testing.T, at []string, flags []string, script string) *running {
	t.Helper()
	args := append([]string{"worker", "run"}, at...)
	return start(t, append(append(args, flags...), "orders", "--", "sh", "-c", script)...)
}

func TestWorkerRunTellsTheCommandItsLeaseAndReleasesItAfterwards(t *testing.T) {
	t.Parallel()
	doors(t, func(t *testing.T, at []string) {
		flags := []string{"--ttl", "20s", "--identity", "web-1", "--layout", "40/3/4/12", "--epoch", "2024-01-01T00:00:00Z", "--datacenter", "5"}
		r := runUnderLease(t, at, flags, `env | grep ^WORKER_; echo END=$(head -1 $WORKER_NOT_AFTER_FILE) BOOT=$(tail -1 $WORKER_NOT_AFTER_FILE); stat -c '%a' $WORKER_NOT_AFTER_FILE; exit 3`)
		if code := r.code(); code != 3 {
			t.Fatalf("%d %s", code, r.stderr)
		}
		told := map[string]string{}
		for line := range strings.Lines(r.stdout.String()) {
			for word := range strings.FieldsSeq(line) {
				name, value, _ := strings.Cut(word, "=")
				told[name] = value
			}
		}
		for name, want := range map[string]string{
			"WORKER_ID": "0", "WORKER_POOL": "orders", "WORKER_LAYOUT": "40/3/4/12", "WORKER_EPOCH_MS": "1704067200000", "WORKER_DATACENTER": "5", "600": "",
		} {
			if got, ok := told[name]; !ok || got != want {
				t.Errorf("%s is %q in %s", name, got, r.stdout)
			}
		}
		ring := ringOf(t, at, "orders")
		slot := ring.Slots[0]
		if told["WORKER_FENCE"] != strconv.FormatInt(slot.Fence, 10) || told["WORKER_NOT_BEFORE_MS"] != strconv.FormatInt(slot.NotBefore.UnixMilli(), 10) ||
			told["WORKER_NOT_AFTER_MS"] != told["END"] || slot.Holder != "web-1" || slot.State != "free" {
			t.Errorf("%v\n%+v", told, slot)
		}
		if _, err := os.Stat(filepath.Dir(told["WORKER_NOT_AFTER_FILE"])); !os.IsNotExist(err) {
			t.Errorf("the file's folder is left: %v", err)
		}
	})
}

// The second line of the file is the end on the clock of /proc/uptime, and no later than the first by the server's clock, which is this machine's.
func TestBothLinesOfTheFileAreOneMoment(t *testing.T) {
	p := serve(t)
	r := runUnderLease(t, []string{"--server", p.banner.URL}, []string{"--ttl", "1h"}, `cat $WORKER_NOT_AFTER_FILE`)
	if code := r.code(); code != 0 {
		t.Fatalf("%d %s", code, r.stderr)
	}
	lines := strings.Fields(r.stdout.String())
	server, _ := strconv.ParseInt(lines[0], 10, 64)
	boot, _ := strconv.ParseInt(lines[1], 10, 64)
	now := sinceBoot()
	ahead := time.Until(time.UnixMilli(server)) - (time.Duration(boot)*time.Millisecond - now)
	if ahead < -2*time.Millisecond || ahead > time.Minute {
		t.Errorf("the second line is %v before the first", ahead)
	}
}

// Each row is a script and the exit code that it ends with.
func TestWorkerRunEndsAsItsCommandDoes(t *testing.T) {
	t.Parallel()
	p := serve(t)
	at := []string{"--server", p.banner.URL}
	for _, row := range []struct {
		script string
		code   int
	}{
		{`exit 0`, 0},
		{`exit 1`, 1},
		{`exit 75`, 75},
		{`exit 255`, 255},
		{`kill -TERM $$`, 128 + 15},
		{`kill -KILL $$`, 128 + 9},
		{`cat; echo out; echo err >&2`, 0},
	} {
		r := runUnderLease(t, at, nil, row.script)
		if code := r.code(); code != row.code || strings.Contains(r.stderr.String(), "coatcheck") {
			t.Errorf("%s: %d %s", row.script, code, r.stderr)
		}
		if row.script[:3] == "cat" && (r.stdout.String() != "out\n" || r.stderr.String() != "err\n") {
			t.Errorf("%q %q", r.stdout, r.stderr)
		}
	}
}

// Each row is a signal that worker run gets and what the command makes of it.
func TestWorkerRunPassesSignalsOn(t *testing.T) {
	p := serve(t)
	for _, row := range []struct {
		signal syscall.Signal
		trap   string
	}{{syscall.SIGINT, "INT"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}} {
		t.Run(row.trap, func(t *testing.T) {
			r := runUnderLease(t, []string{"--server", p.banner.URL}, nil, `trap 'echo got; exit 42' `+row.trap+`; echo ready; while :; do sleep 0.05; done`)
			eventually(t, "it is ready", func() bool { return strings.Contains(r.stdout.String(), "ready") })
			if err := r.cmd.Process.Signal(row.signal); err != nil {
				t.Fatal(err)
			}
			if code := r.code(); code != 42 || !strings.Contains(r.stdout.String(), "got") {
				t.Errorf("%d %s %s", code, r.stdout, r.stderr)
			}
		})
	}
}

func TestSignalsThatTheCommandDoesNotTakeEndIt(t *testing.T) {
	p := serve(t)
	r := runUnderLease(t, []string{"--server", p.banner.URL}, nil, `echo ready; sleep 60`)
	eventually(t, "it is ready", func() bool { return strings.Contains(r.stdout.String(), "ready") })
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if code := r.code(); code != 128+15 {
		t.Errorf("%d %s", code, r.stderr)
	}
}

// The lease is kept until what the command has left behind in its group is gone, which is told to end, and then made to.
func TestLeaseIsKeptUntilTheWholeGroupHasEnded(t *testing.T) {
	p := serve(t)
	at := []string{"--server", p.banner.URL}
	path := filepath.Join(t.TempDir(), "beats")
	script := "'" + os.Args[0] + "' " + asCommand + " '" + path + "' deaf & while ! grep -q pid '" + path + "'; do sleep 0.02; done; exit 9"
	r := runUnderLease(t, at, []string{"--ttl", "1h", "--grace", "500ms"}, script)
	if code := r.code(); code != 9 {
		t.Fatalf("%d %s", code, r.stderr)
	}
	b := readBeats(t, path)
	if b.pid == 0 || !goneProcess(b.pid) {
		t.Errorf("process %d is left", b.pid)
	}
	slot := ringOf(t, at, "orders").Slots[0]
	if slot.State != "free" || slot.NotAfter.UnixMilli() < b.last {
		t.Errorf("released %+v before the last of its processes had ended, at %d", slot, b.last)
	}
}

func TestWorkerRunWithoutAnIdToBeHad(t *testing.T) {
	t.Parallel()
	doors(t, func(t *testing.T, at []string) {
		one := runUnderLease(t, at, []string{"--layout", "41/1/12"}, `echo ready; cat; sleep 60`)
		two := runUnderLease(t, at, []string{"--layout", "41/1/12"}, `echo ready; sleep 60`)
		for _, r := range []*running{one, two} {
			eventually(t, "it holds an id", func() bool { return strings.Contains(r.stdout.String(), "ready") })
		}
		three := runUnderLease(t, at, nil, `echo ready`)
		if code := three.code(); code != tryLater || !strings.Contains(three.stderr.String(), "Try again in") || !strings.Contains(three.stderr.String(), "--wait") {
			t.Errorf("%d %s", code, three.stderr)
		}
		four := runUnderLease(t, at, []string{"--wait", "1m"}, `echo ready`)
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		if code := four.code(); code != done || four.stdout.String() != "ready\n" {
			t.Errorf("%d %s", code, four.stderr)
		}
		five := runUnderLease(t, at, []string{"--layout", "41/10/12"}, `echo ready`)
		if code := five.code(); code != failed || !strings.Contains(five.stderr.String(), "41/1/12") {
			t.Errorf("%d %s", code, five.stderr)
		}
	})
}

func TestPoolInQuarantineSaysHowToDeclareItNew(t *testing.T) {
	redis := redistest.Start(t)
	for name, at := range map[string][]string{
		"service": {"--server", serve(t, "--redis", redis.URL(), "--prefix", "a:").banner.URL},
		"redis":   {"--redis", redis.URL(), "--prefix", "b:"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runUnderLease(t, at, nil, `true`)
			if code := r.code(); code != tryLater || !strings.Contains(r.stderr.String(), "coatcheck worker create orders") || !strings.Contains(r.stderr.String(), "Try again in") {
				t.Errorf("%d %s", code, r.stderr)
			}
			code, stdout, stderr := coatcheck(t, nil, append([]string{"worker", "create", "invoices", "--ttl", "5s", "--layout", "41/5/7"}, at...)...)
			if code != done || !strings.Contains(stdout, "41/5/7") || !strings.Contains(stdout, "5s") {
				t.Errorf("%d %s %s", code, stdout, stderr)
			}
			if code, _, stderr := coatcheck(t, nil, append([]string{"worker", "create", "invoices"}, at...)...); code != failed || !strings.Contains(stderr, "there already") {
				t.Errorf("again: %d %s", code, stderr)
			}
			s := start(t, append(append([]string{"worker", "run"}, at...), "invoices", "--", "true")...)
			if code := s.code(); code != done {
				t.Errorf("%d %s", code, s.stderr)
			}
			code, stdout, stderr = coatcheck(t, nil, append([]string{"worker", "ls"}, at...)...)
			if code != done || !strings.Contains(stdout, "invoices") {
				t.Errorf("%d %s %s", code, stdout, stderr)
			}
		})
	}
}

func TestWorkerLsWithoutPools(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		code, stdout, stderr := coatcheck(t, nil, append([]string{"worker", "ls", "--json"}, at...)...)
		var list wire.WorkerPools
		if err := json.Unmarshal([]byte(stdout), &list); code != done || err != nil || list.Pools == nil {
			t.Errorf("%d %s %s", code, stdout, stderr)
		}
		if code, _, stderr := coatcheck(t, nil, append([]string{"worker", "ls", "nobodys"}, at...)...); code != failed {
			t.Errorf("%d %s", code, stderr)
		}
	})
}

// Each row is a command line and the exit code that scripts decide by.
func TestWorkerExitCodes(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	redis.Kill()
	for _, row := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"worker"}, done, ""},
		{[]string{"worker", "nonsense"}, usage, "nonsense"},
		{[]string{"worker", "run"}, usage, "behind two dashes"},
		{[]string{"worker", "run", "orders"}, usage, "behind two dashes"},
		{[]string{"worker", "run", "orders", "true"}, usage, "behind two dashes"},
		{[]string{"worker", "run", "--", "orders", "true"}, usage, "behind two dashes"},
		{[]string{"worker", "run", "or/ders", "--", "true"}, usage, "or/ders"},
		{[]string{"worker", "run", "..", "--", "true"}, usage, "pool's name"},
		{[]string{"worker", "run", "orders", "--", "coatcheck-no-such-program"}, usage, "not found"},
		{[]string{"worker", "run", "--ttl", "10ms", "orders", "--", "true"}, usage, "ttl"},
		{[]string{"worker", "run", "--layout", "41/41/41", "orders", "--", "true"}, usage, "layout"},
		{[]string{"worker", "run", "--epoch", "yesterday", "orders", "--", "true"}, usage, "epoch"},
		{[]string{"worker", "run", "--datacenter", "-1", "orders", "--", "true"}, usage, "datacenter"},
		{[]string{"worker", "run", "--wait", "-1s", "orders", "--", "true"}, usage, "wait"},
		{[]string{"worker", "run", "--server", "http://h:1", "--redis", "redis://h:1", "orders", "--", "true"}, usage, "name one"},
		{[]string{"worker", "run", "--redis", "embedded:", "orders", "--", "true"}, usage, "--server"},
		{[]string{"worker", "run", "--server", "localhost", "orders", "--", "true"}, usage, "http://host:port"},
		{[]string{"worker", "run", "--server", p.banner.URL, "orders", "--", "true"}, tryLater, "store-unavailable"},
		{[]string{"worker", "run", "--redis", redis.URL(), "orders", "--", "true"}, tryLater, "refused"},
		{[]string{"worker", "create"}, usage, "one pool"},
		{[]string{"worker", "create", "a", "b"}, usage, "one pool"},
		{[]string{"worker", "create", "a", "--datacenter", "7", "--redis", redis.URL()}, usage, "datacenter"},
		{[]string{"worker", "create", "a", "--epoch", "2100-01-01T00:00:00Z", "--redis", redis.URL()}, usage, "epoch"},
		{[]string{"worker", "create", "a", "--layout", "20/1/1", "--redis", redis.URL()}, usage, "ended"},
		{[]string{"worker", "create", "a", "--redis", redis.URL()}, tryLater, "refused"},
		{[]string{"worker", "ls", "a", "b"}, usage, "one pool"},
		{[]string{"worker", "ls", "--server", p.banner.URL}, tryLater, "store-unavailable"},
		{[]string{"worker", "ls", "a", "--redis", redis.URL()}, tryLater, "refused"},
		{[]string{"id", "a", "b"}, usage, "one pool"},
		{[]string{"id", "--format", "roman"}, usage, "roman"},
		{[]string{"id", "-n", "0"}, usage, "count"},
		{[]string{"id", "-n", "many"}, usage, "count"},
		{[]string{"id", "--format", "timed", "--server", p.banner.URL}, usage, "name it"},
		{[]string{"id", "orders", "--server", p.banner.URL}, tryLater, ""},
		{[]string{"id", "--redis", redis.URL()}, tryLater, "refused"},
		{[]string{"id", "decode"}, usage, "ids belong here"},
		{[]string{"id", "decode", "12x"}, usage, "12x"},
		{[]string{"id", "decode", "9223372036854775808"}, usage, "range"},
		{[]string{"id", "decode", "--layout", "41/5/7", "9223372036854775807"}, usage, "largest"},
		{[]string{"id", "decode", "--pool", "a", "--layout", "41/5/7", "1"}, usage, "--pool"},
		{[]string{"id", "decode", "--pool", "a", "--redis", redis.URL(), "1"}, tryLater, "refused"},
		{[]string{"guard"}, usage, "worker run"},
	} {
		code, _, stderr := coatcheck(t, nil, row.args...)
		if code != row.code || !strings.Contains(stderr, row.stderr) {
			t.Errorf("%v: %d %s", row.args, code, stderr)
		}
	}
}
