//go:build check

package client_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// stamper starts a language's example that stamps ids with a worker id that it leases over HTTP. It
// ends with the test at the latest.
func (l language) stamper(t testing.TB, url string, args ...string) *worker {
	t.Helper()
	return l.start(t, append([]string{l.ids, "--server", url, "--pool", "orders"}, args...)...)
}

// inEachLanguage runs a test with each language.
func inEachLanguage(t *testing.T, test func(t *testing.T, l language)) {
	t.Helper()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// crashed is in what an interpreter prints of an error that no program expected.
var crashed = regexp.MustCompile(`Traceback|\n    at `)

// start starts the interpreter.
func (l language) start(t testing.TB, args ...string) *worker {
	t.Helper()
	program, err := exec.LookPath(l.program)
	if err != nil {
		t.Fatalf("%s is not there: %s", l.program, l.install)
	}
	process := &worker{t: t, cmd: exec.Command(program, args...)}
	process.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+pythonPackage)
	process.cmd.Stdout, process.cmd.Stderr = &process.stdout, &process.stderr
	must(t, "starting "+strings.Join(args, " "), process.cmd.Start())
	t.Cleanup(func() {
		process.once.Do(func() {
			_ = process.cmd.Process.Kill() // also if it is stopped
			_ = process.cmd.Wait()
		})
	})
	return process
}

// stamped waits for a process's end, and returns how it ended and the ids that it printed, taken
// apart by a layout. They rise, and are of one worker id.
func stamped(t testing.TB, process *worker, layout string) (code int, ids []snowflake.ID, parts []snowflake.Parts) {
	t.Helper()
	process.end()
	bits := snowflake.MustLayout(layout)
	for line := range strings.Lines(process.stdout.String()) {
		id, err := snowflake.Parse(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatalf("the process printed %q: %v\n%s", line, err, &process.stderr)
		}
		ids, parts = append(ids, id), append(parts, bits.Decode(id, snowflake.DefaultEpoch))
		if last := len(ids) - 1; last > 0 && (ids[last] <= ids[last-1] || parts[last].Worker != parts[0].Worker) {
			t.Fatalf("the id %v, %+v, follows %v, %+v, want a larger one of the same worker id", ids[last], parts[last], ids[last-1], parts[last-1])
		}
	}
	return process.cmd.ProcessState.ExitCode(), ids, parts
}

// once fails the test if an id is there twice.
func once(t testing.TB, all ...[]snowflake.ID) {
	t.Helper()
	seen := map[snowflake.ID]bool{}
	for _, ids := range all {
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("the id %v was stamped twice", id)
			}
			seen[id] = true
		}
	}
}

func TestIDsFromClients(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l language) {
		for layout, unit := range map[string]time.Duration{"41/10/12": time.Millisecond, "41/5/7": time.Millisecond, "41/4/4/0": time.Millisecond, "32/10/21@s": time.Second} {
			t.Run(strings.ReplaceAll(layout, "/", "-"), func(t *testing.T) {
				s := embedded(t)
				var processes []*worker
				for range 4 {
					processes = append(processes, l.stamper(t, s.url, "--n", "1500", "--layout", layout, "--ttl-ms", "60000"))
				}
				var all [][]snowflake.ID
				for _, process := range processes {
					code, ids, parts := stamped(t, process, layout)
					if code != 0 || len(ids) != 1500 {
						t.Fatalf("the process ended with exit code %d and %d ids, want 0 and 1500: %s", code, len(ids), &process.stderr)
					}
					all = append(all, ids)
					used := parts[len(parts)-1].Time.Add(unit)
					got := slot(t, s.Client, "orders", parts[0].Worker)
					if parts[0].Time.Before(got.NotBefore.Time) || !got.NotAfter.Equal(used) || got.State != "free" {
						t.Errorf("the process stamped from %v until %v, its slot is %+v, want it free, and its window from then until then", parts[0].Time, used, got)
					}
				}
				once(t, all...)
			})
		}
	})
}

// A service in front of Redis is killed, with a new one later, or with all that Redis knew, while
// several processes stamp.
func TestIDsFromClientsOverFaults(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l language) {
		redis := redistest.Start(t)
		s := serveWith(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Workers: workerlease.Config{Skew: 100 * time.Millisecond, LongestTTL: 15 * time.Second}})
		_, err := s.CreatePool(t.Context(), "orders", client.PoolShape{TTL: 6 * time.Second, Layout: "41/3/12"})
		must(t, "CreatePool", err)
		var processes []*worker
		for n := range 4 {
			processes = append(processes, l.stamper(t, s.url, "--n", "0", "--rate", "500", "--identity", "p"+strconv.Itoa(n)))
		}
		renewed := func(times int) {
			t.Helper()
			from := s.proxy.count("renew")
			expect.Eventually(t, "renewals", func() bool { return s.proxy.count("renew") >= from+times })
		}
		held := func() (n int) {
			ring, err := s.Ring(t.Context(), "orders", 0, 8)
			must(t, "Ring", err)
			for _, slot := range ring.Slots {
				if slot.State == "held" {
					n++
				}
			}
			return n
		}
		expect.Eventually(t, "all stamp", func() bool { return held() == 4 })
		for name, lose := range map[string]fault{"lost": loseReply, "ended": hangUp, "proxy": says(502, "text/html", "bad gateway")} {
			s.proxy.disturb(only("renew", 4, lose))
			renewed(8)
			expect.Equal(t, "worker ids held after renewals that were "+name, held(), 4)
		}
		flush(t, redis)
		renewed(8)
		expect.Equal(t, "worker ids held after the loss of all state", held(), 4)
		_, err = s.AcquireWorker(t.Context(), "orders", client.WorkerRequest{})
		wantError(t, err, client.ErrQuarantined)

		for _, process := range processes[:2] {
			must(t, "SIGTERM", process.cmd.Process.Signal(syscall.SIGTERM))
		}
		var all [][]snowflake.ID
		for _, process := range processes[:2] {
			code, ids, parts := stamped(t, process, "41/3/12")
			if got := slot(t, s.Client, "orders", parts[0].Worker); code != 0 || got.State != "free" || !got.NotAfter.Equal(parts[len(parts)-1].Time.Add(time.Millisecond)) {
				t.Errorf("a process that was asked to end: exit code %d, its slot is %+v, want 0, and the slot free from its last id on: %s", code, got, &process.stderr)
			}
			all = append(all, ids)
		}
		s.proxy.disturb(hangUp) // for good
		for _, process := range processes[2:] {
			code, ids, parts := stamped(t, process, "41/3/12")
			got := s.directSlot(t, parts[0].Worker)
			if last := parts[len(parts)-1].Time; code != 75 || !last.Before(got.NotAfter.Add(-200*time.Millisecond)) || parts[0].Time.Before(got.NotBefore.Time) {
				t.Errorf("a process without its service: exit code %d, stamped from %v until %v, its slot is %+v, want 75, and ids within its window, 200 ms before its end: %s",
					code, parts[0].Time, last, got, &process.stderr)
			}
			all = append(all, ids)
		}
		once(t, all...)
	})
}

// directSlot reads a slot without the proxy.
func (s *service) directSlot(t testing.TB, worker int) api.WorkerSlot {
	t.Helper()
	return slot(t, connect(t, listen(t, s.proxy.service)), "orders", worker)
}

// A process is stopped for longer than its lease, and others get its worker id: when it goes on it
// stamps nothing.
func TestIDsFromClientsThatWasPaused(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l language) {
		s := embedded(t)
		first := l.stamper(t, s.url, "--n", "0", "--rate", "1000", "--ttl-ms", "5000", "--layout", "41/1/12")
		expect.Eventually(t, "it renews", func() bool { return s.proxy.count("renew") >= 2 })
		must(t, "SIGSTOP", first.cmd.Process.Signal(syscall.SIGSTOP))
		expect.Eventually(t, "its window ends", func() bool { return slot(t, s.Client, "orders", 0).State == "free" })
		window := slot(t, s.Client, "orders", 0)
		var all [][]snowflake.ID
		workers := map[int]bool{}
		for range 2 {
			other := l.stamper(t, s.url, "--n", "3000")
			code, ids, parts := stamped(t, other, "41/1/12")
			if code != 0 || parts[0].Worker == 0 && parts[0].Time.Before(window.NotAfter.Time) {
				t.Errorf("another process: exit code %d, its first id is %+v, want 0, and no worker id 0 before %v: %s", code, parts[0], window.NotAfter, &other.stderr)
			}
			workers[parts[0].Worker] = true
			all = append(all, ids)
		}
		if !workers[0] {
			t.Errorf("the other processes got the worker ids %v, want 0 among them", workers)
		}
		must(t, "SIGCONT", first.cmd.Process.Signal(syscall.SIGCONT))
		code, ids, parts := stamped(t, first, "41/1/12")
		if last := parts[len(parts)-1].Time; code != 75 || !last.Add(time.Millisecond).Before(window.NotAfter.Time) || parts[0].Time.Before(window.NotBefore.Time) {
			t.Errorf("the process that was paused: exit code %d, stamped from %v until %v, want 75, and ids within %+v", code, parts[0].Time, last, window)
		}
		once(t, append(all, ids)...)
	})
}

// Seconds are stamped only where the whole second lies in the window, also at its end.
func TestIDsFromClientsInSeconds(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l language) {
		s := embedded(t)
		s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
			return verb(r) == "renew" && s.proxy.count("renew") > 4 && hangUp(w, r, service)
		})
		process := l.stamper(t, s.url, "--n", "0", "--rate", "500", "--ttl-ms", "6000", "--layout", "32/10/21@s")
		code, _, parts := stamped(t, process, "32/10/21@s")
		got := slot(t, s.Client, "orders", parts[0].Worker)
		if last := parts[len(parts)-1].Time; code != 75 || parts[0].Time.Before(got.NotBefore.Time) || last.Add(time.Second).After(got.NotAfter.Time) {
			t.Errorf("exit code %d, stamped from %v until %v, want 75, and whole seconds within %+v", code, parts[0].Time, last, got)
		}
	})
}

// The wall clock has no part in an id; one that jumps forward may mean that the machine has slept,
// and ends the lease.
func TestIDsFromPythonWithAWrongWallClock(t *testing.T) {
	const program = `
import itertools, runpy, sys, time
real, reads = time.time, itertools.count()
time.time = lambda: real() + %s
sys.argv = ["ids.py", "--server", "%s", "--pool", "orders", "--n", "300"]
runpy.run_path("../clients/python/examples/ids.py", run_name="__main__")
`
	s := embedded(t)
	for offset, want := range map[string]int{"3600": 0, "-3600": 0, "(3600 if next(reads) > 100 else 0)": 75} {
		process := languages[0].start(t, "-c", fmt.Sprintf(program, offset, s.url))
		code, ids, parts := stamped(t, process, "41/10/12")
		if code != want || want == 0 && len(ids) != 300 || len(ids) < 50 {
			t.Fatalf("with the wall clock off by %s: exit code %d, %d ids, want exit code %d: %s", offset, code, len(ids), want, &process.stderr)
		}
		got := slot(t, s.Client, "orders", parts[0].Worker)
		if last := parts[len(parts)-1].Time; parts[0].Time.Before(got.NotBefore.Time) || !last.Add(time.Millisecond).Equal(got.NotAfter.Time) {
			t.Errorf("with the wall clock off by %s: stamped from %v until %v, want within %+v, to its end", offset, parts[0].Time, last, got)
		}
	}
}

func TestIDsFromClientsKnowWhatTheServiceSays(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l language) {
		s := embedded(t)
		for name, row := range map[string]struct {
			fault fault
			url   string
			args  []string
			code  int
			says  string
		}{
			"away":         {nil, "http://" + proctest.ClosedPort(t), nil, 75, "no connection"},
			"quarantined":  {says(503, "application/problem+json", `{"code":"pool-quarantined"}`), s.url, nil, 75, "pool-quarantined"},
			"exhausted":    {says(503, "application/problem+json", `{"code":"pool-exhausted"}`), s.url, nil, 75, "pool-exhausted"},
			"lost reply":   {loseReply, s.url, nil, 75, "unknown-outcome"},
			"cut off":      {cutOff, s.url, nil, 75, "unknown-outcome"},
			"not whole":    {says(201, "application/json", `{"worker_id":1}`), s.url, nil, 75, "unknown-outcome"},
			"other layout": {nil, s.url, []string{"--layout", "41/5/7"}, 1, "layout-mismatch"},
			"no layout":    {nil, s.url, []string{"--layout", "nonsense"}, 1, "invalid-request"},
		} {
			s.proxy.disturb(nil)
			acquire(t, s.Client, "orders", client.WorkerRequest{TTL: 15 * time.Second})
			s.proxy.disturb(row.fault)
			process := l.stamper(t, row.url, row.args...)
			code, ids, _ := stamped(t, process, "41/10/12")
			if code != row.code || len(ids) != 0 || !strings.Contains(process.stderr.String(), row.says) || crashed.MatchString(process.stderr.String()) {
				t.Errorf("%s: exit code %d, %d ids, want %d, no id, `%s` and no traceback: %s", name, code, len(ids), row.code, row.says, &process.stderr)
			}
		}
		// A reply that was lost costs a worker id, and the next is another.
		s.proxy.disturb(only("acquire", 1, loseReply))
		process := l.stamper(t, s.url, "--patience", "20")
		if code, ids, _ := stamped(t, process, "41/10/12"); code != 0 || len(ids) != 10 {
			t.Errorf("after a reply that was lost: exit code %d, %d ids, want 0 and 10: %s", code, len(ids), &process.stderr)
		}
		s.proxy.disturb(only("renew", 1, says(410, "application/problem+json", `{"code":"lease-lost"}`)))
		process = l.stamper(t, s.url, "--n", "0", "--rate", "100", "--layout", "41/10/12")
		code, _, _ := stamped(t, process, "41/10/12")
		if code != 75 || !strings.Contains(process.stderr.String(), "lease-lost") || s.proxy.count("renew") != 1 {
			t.Errorf("whose lease is lost: exit code %d after %d renewals, want 75 and `lease-lost` after 1: %s", code, s.proxy.count("renew"), &process.stderr)
		}
	})
}

// The proof that goes with a renewal is the lease as it was granted and renewed last.
func TestIDsFromClientsRenewWithTheWholeProof(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l language) {
		s := embedded(t)
		proofs, done := make(chan map[string]any, 3), make(chan struct{})
		s.proxy.disturb(only("renew", 3, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			proofs <- readJSON(t, r)
			if len(proofs) == 3 {
				close(done)
			}
			return false
		}))
		process := l.stamper(t, s.url, "--n", "0", "--rate", "100", "--ttl-ms", "6000", "--layout", "41/5/5/12", "--identity", "me")
		<-done
		window := slot(t, s.Client, "orders", 0)
		_ = process.cmd.Process.Signal(syscall.SIGTERM)
		if code, _, _ := stamped(t, process, "41/5/5/12"); code != 0 {
			t.Errorf("the process ended with exit code %d, want 0: %s", code, &process.stderr)
		}
		var last time.Time
		for range 3 {
			proof := <-proofs
			end, err := time.Parse(time.RFC3339, fmt.Sprint(proof["not_after"]))
			delete(proof, "not_after")
			want := map[string]any{"ttl_ms": 6000.0, "fence": float64(window.Fence), "identity": "me", "layout": "41/5/5/12", "epoch": "2020-01-01T00:00:00.000Z", "datacenter": 0.0}
			if err != nil || !end.After(last) || fmt.Sprint(proof) != fmt.Sprint(want) {
				t.Errorf("a renewal proves %v until %v, %v, want %v until later than %v", proof, end, err, want, last)
			}
			last = end
		}
	})
}

// Ids of rare calls fall on all shards.
func TestRareIDsOfPythonAreSpreadOverShards(t *testing.T) {
	s := embedded(t)
	process := languages[0].start(t, "-c", `
import time, coatcheck
worker = coatcheck.WorkerId("`+s.url+`", "orders")
for _ in range(200):
    print(worker.next_id(), flush=True)
    time.sleep(0.002)
worker.release()
`)
	code, ids, _ := stamped(t, process, "41/10/12")
	shards := map[int64]int{}
	for _, id := range ids {
		shards[int64(id)%8]++
	}
	if code != 0 || len(shards) != 8 {
		t.Errorf("exit code %d, ids by id mod 8: got %v, want 0 and all eight: %s", code, shards, &process.stderr)
	}
}

// What a fork of the process stamped would be there twice.
func TestAForkOfPythonStampsNothing(t *testing.T) {
	s := embedded(t)
	process := languages[0].start(t, "-c", `
import os, sys, coatcheck
worker = coatcheck.WorkerId("`+s.url+`", "orders")
print(worker.next_id(), flush=True)
child = os.fork()
if child == 0:
    for call in (worker.next_id, worker.check, worker.release):
        try:
            call()
        except coatcheck.NoLease:
            continue
        os._exit(1)
    os._exit(7)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(worker.next_id(), flush=True)
worker.release()
sys.exit(ended)
`)
	if code, ids, _ := stamped(t, process, "41/10/12"); code != 7 || len(ids) != 2 {
		t.Errorf("exit code %d, %d ids, want 7 of the fork and 2 ids of the process: %s", code, len(ids), &process.stderr)
	}
}
