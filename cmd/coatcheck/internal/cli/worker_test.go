package cli

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/supervise"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// doors are the two ways to pools: a running service, and a Redis.
func doors(t *testing.T, test func(t *testing.T, at []string)) {
	t.Helper()
	t.Run("service", func(t *testing.T) { test(t, []string{"--server", serve(t).banner.URL}) })
	t.Run("redis", func(t *testing.T) {
		test(t, []string{"--redis", redistest.Start(t).URL(), "--new-pools", "trust"})
	})
}

// runUnderLease starts a script with a worker id of the pool orders, leased for an hour unless the
// flags say otherwise.
func runUnderLease(t *testing.T, at []string, flags []string, script string) *running {
	t.Helper()
	args := append([]string{"worker", "run", "--ttl", "1h"}, at...)
	return start(t, append(append(args, flags...), "orders", "--", "sh", "-c", script)...)
}

func TestWorkerRunTellsTheCommandItsLeaseAndReleasesItAfterwards(t *testing.T) {
	t.Parallel()
	doors(t, func(t *testing.T, at []string) {
		flags := []string{"--identity", "web-1", "--layout", "40/3/4/12", "--epoch", "2024-01-01T00:00:00Z", "--datacenter", "5"}
		r := runUnderLease(t, at, flags, `env | grep ^WORKER_; echo END=$(head -1 $WORKER_NOT_AFTER_FILE) BOOT=$(tail -1 $WORKER_NOT_AFTER_FILE); stat -c '%a' $WORKER_NOT_AFTER_FILE; exit 3`)
		r.exits(3)
		told := map[string]string{}
		for line := range strings.Lines(r.stdout.String()) {
			for word := range strings.FieldsSeq(line) {
				name, value, _ := strings.Cut(word, "=")
				told[name] = value
			}
		}
		slot := ringOf(t, at, "orders").Slots[0]
		want := map[string]string{
			"WORKER_ID": "0", "WORKER_POOL": "orders", "WORKER_LAYOUT": "40/3/4/12", "WORKER_EPOCH_MS": "1704067200000", "WORKER_DATACENTER": "5", "600": "",
			"WORKER_FENCE": strconv.FormatInt(slot.Fence, 10), "WORKER_NOT_BEFORE_MS": strconv.FormatInt(slot.NotBefore.UnixMilli(), 10), "WORKER_NOT_AFTER_MS": told["END"],
		}
		others := func(name, _ string) bool {
			_, wanted := want[name]
			return !wanted
		}
		expect.Equal(t, "what the command was told, and the mode of its file", told, want, cmpopts.IgnoreMapEntries(others))
		expect.Equal(t, "state and holder of the worker id after the command's end", [2]string{slot.State, slot.Holder}, [2]string{"free", "web-1"})
		if _, err := os.Stat(filepath.Dir(told["WORKER_NOT_AFTER_FILE"])); !os.IsNotExist(err) {
			t.Errorf("the file's folder is left: %v", err)
		}
	})
}

// The second line of the file is the end on the clock of /proc/uptime, and no later than the first
// by the server's clock, which is this machine's.
func TestBothLinesOfTheFileAreOneMoment(t *testing.T) {
	p := serve(t)
	r := runUnderLease(t, []string{"--server", p.banner.URL}, nil, `cat $WORKER_NOT_AFTER_FILE`)
	r.exits(0)
	lines := strings.Fields(r.stdout.String())
	if len(lines) != 2 {
		t.Fatalf("the file holds %q, want two lines", lines)
	}
	server, _ := strconv.ParseInt(lines[0], 10, 64)
	boot, _ := strconv.ParseInt(lines[1], 10, 64)
	// The clocks are not read at once: the difference is at least what follows from the earlier
	// reading, and at most what follows from the later one.
	earlier := supervise.SinceBoot()
	first := time.Until(time.UnixMilli(server))
	later := supervise.SinceBoot()
	second := time.Duration(boot) * time.Millisecond
	if least, most := first-(second-earlier), first-(second-later); most < -2*time.Millisecond || least > time.Minute {
		t.Errorf("the second line is between %v and %v before the first, want between -2ms and a minute", least, most)
	}
}

// Each row is a script and the exit code that it ends with.
// The lease is kept until what the command has left behind in its group is gone, which is told to
// end, and then made to.
func TestLeaseIsKeptUntilTheWholeGroupHasEnded(t *testing.T) {
	t.Parallel()
	p := serve(t)
	at := []string{"--server", p.banner.URL}
	path := filepath.Join(t.TempDir(), "beats")
	script := "'" + os.Args[0] + "' " + asCommand + " '" + path + "' deaf & while ! grep -q pid '" + path + "'; do sleep 0.02; done; exit 9"
	r := runUnderLease(t, at, []string{"--grace", "500ms"}, script)
	r.exits(9)
	b := readBeats(t, path)
	if b.pid == 0 || !goneProcess(b.pid) {
		t.Errorf("process %d, which the command left behind, is there after the lease's end; want it to be known and gone", b.pid)
	}
	slot := ringOf(t, at, "orders").Slots[0]
	if slot.State != "free" || slot.NotAfter.UnixMilli() < b.last {
		t.Errorf("got slot %+v, want it free, and released after the last of its processes had ended, at %d", slot, b.last)
	}
}

func TestWorkerRunWithoutAnIdToBeHad(t *testing.T) {
	t.Parallel()
	doors(t, func(t *testing.T, at []string) {
		one := runUnderLease(t, at, []string{"--layout", "41/1/12"}, `echo ready; cat; sleep 600`)
		two := runUnderLease(t, at, []string{"--layout", "41/1/12"}, `echo ready; sleep 600`)
		one.ready()
		two.ready()
		runUnderLease(t, at, nil, `echo ready`).exits(tryLater, "Try again in", "--wait")
		ended, end := context.WithCancel(t.Context()) // as by a signal
		end()
		args := append(append([]string{"worker", "run", "--wait", "1h"}, at...), "orders", "--", "true")
		expect.Equal(t, "exit code after a signal during the wait", run(ended, args, os.Getenv, io.Discard, io.Discard), tryLater)
		four := runUnderLease(t, at, []string{"--wait", "1h"}, `echo ready`)
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		four.exits(done)
		expect.Equal(t, "stdout of the command that waited for an id", four.stdout.String(), "ready\n")
		runUnderLease(t, at, []string{"--layout", "41/10/12"}, `echo ready`).exits(failed, "41/1/12")
	})
}

func TestPoolInQuarantineSaysHowToDeclareItNew(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for name, at := range map[string][]string{
		"service": {"--server", serve(t, "--redis", redis.URL(), "--prefix", "a:", "--worker-longest-ttl", "1h").banner.URL},
		"redis":   {"--redis", redis.URL(), "--prefix", "b:", "--worker-longest-ttl", "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := runUnderLease(t, at, nil, `true`)
			refused.exits(tryLater, "coatcheck worker create orders", "Try again in")
			expect.Equal(t, "how often the way out is named", strings.Count(refused.stderr.String(), "worker create"), 1)
			execute(t, nil, append([]string{"worker", "ls"}, at...)...).exits(done).prints("orders grants its first worker id in", "coatcheck worker create orders")
			var list api.WorkerPools
			execute(t, nil, append([]string{"worker", "ls", "--json"}, at...)...).exits(done).into(&list)
			waits := slices.ContainsFunc(list.Waiting, func(pool api.WaitingPool) bool { return pool.Pool == "orders" && pool.WaitMs > 0 && pool.New })
			expect.Equal(t, "the pool waits, by worker ls --json", waits, true)
			execute(t, nil, append([]string{"worker", "create", "invoices", "--ttl", "1h", "--layout", "41/5/7"}, at...)...).exits(done).prints("41/5/7", "1h")
			execute(t, nil, append([]string{"worker", "create", "invoices"}, at...)...).exits(failed, "there already")
			start(t, append(append([]string{"worker", "run"}, at...), "invoices", "--", "true")...).exits(done)
			execute(t, nil, append([]string{"worker", "ls"}, at...)...).exits(done).prints("invoices")
		})
	}
}

func TestWorkerLsWithoutPools(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		var list api.WorkerPools
		if ls := execute(t, nil, append([]string{"worker", "ls", "--json"}, at...)...).exits(done).into(&list); list.Pools == nil {
			t.Errorf("%s prints %s, want a list of pools", ls.line, ls.stdout)
		}
		execute(t, nil, append([]string{"worker", "ls", "nobodys"}, at...)...).exits(failed)
	})
}

func TestWorkerLsShowsAPoolWithoutAFreeWorkerID(t *testing.T) {
	url := serve(t, "--redis", "embedded:").banner.URL
	execute(t, nil, "worker", "create", "fleet", "--layout", "41/1/21", "--server", url).exits(done).prints("open")
	for range 2 {
		answer, err := http.Post(url+"/worker/fleet", "application/json", nil)
		expect.Error(t, "POST /worker/fleet", err, nil)
		_ = answer.Body.Close()
	}
	execute(t, nil, "worker", "ls", "--server", url).exits(done).prints("full")
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
		{[]string{"worker", "run"}, usage, "after two dashes"},
		{[]string{"worker", "run", "orders"}, usage, "after two dashes"},
		{[]string{"worker", "run", "orders", "true"}, usage, "after two dashes"},
		{[]string{"worker", "run", "--", "orders", "true"}, usage, "after two dashes"},
		{[]string{"worker", "run", "or/ders", "--", "true"}, usage, "or/ders"},
		{[]string{"worker", "run", "..", "--", "true"}, usage, "pool's name"},
		{[]string{"worker", "run", "orders", "--", "coatcheck-no-such-program"}, 127, "not found"},
		{[]string{"worker", "run", "--ttl", "10ms", "orders", "--", "true"}, usage, "a duration from 1s to 24h\n"},
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
		execute(t, nil, row.args...).exits(row.code, row.stderr)
	}
}
