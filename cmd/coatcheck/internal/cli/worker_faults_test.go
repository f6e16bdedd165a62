//go:build check

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/supervise"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Each row is a way of losing what grants the lease. The command that ran under it, and what it has
// started, deaf to SIGTERM, must be gone before its window ends by the server's clock.
func TestCommandNeverOutlivesItsWindow(t *testing.T) {
	for _, row := range []struct {
		name  string
		begin func(t *testing.T) (flags []string, fault func())
	}{
		{"service killed", func(t *testing.T) ([]string, func()) {
			p := serveProcess(t)
			return []string{"--server", p.banner.URL}, p.kill
		}},
		{"service stopped", func(t *testing.T) ([]string, func()) {
			p := serveProcess(t)
			return []string{"--server", p.banner.URL}, func() { p.signal(syscall.SIGSTOP) }
		}},
		{"service in a black hole", func(t *testing.T) ([]string, func()) {
			link := redistest.StartProxy(t, strings.TrimPrefix(serve(t).banner.URL, "http://"), nil)
			return []string{"--server", "http://" + link.Addr()}, link.Swallow
		}},
		{"service's redis stopped", func(t *testing.T) ([]string, func()) {
			redis := redistest.Start(t)
			p := serve(t, "--redis", redis.URL(), "--new-pools", "trust")
			return []string{"--server", p.banner.URL}, redis.Pause
		}},
		{"redis killed", func(t *testing.T) ([]string, func()) {
			redis := redistest.Start(t)
			return []string{"--redis", redis.URL(), "--new-pools", "trust"}, redis.Kill
		}},
		{"redis stopped", func(t *testing.T) ([]string, func()) {
			redis := redistest.Start(t)
			return []string{"--redis", redis.URL(), "--new-pools", "trust"}, redis.Pause
		}},
		{"redis in a black hole", func(t *testing.T) ([]string, func()) {
			link := redistest.StartProxy(t, redistest.Start(t).Addr(), nil)
			return []string{"--redis", "redis://" + link.Addr(), "--new-pools", "trust"}, link.Swallow
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			const ttl = 2 * time.Second
			tried(t, supervise.Allowed(ttl, 0).Margin/2, func(t *testing.T, o *onlooker) []string {
				flags, fault := row.begin(t)
				r := workerRunBeating(t, append(flags, "--ttl", ttl.String()), "deaf", "fork")
				r.renewed()
				o.look()
				fault()
				r.exits(tryLater, "was lost", "start the command again")
				return append(r.late(r.path), r.late(r.path+".forked")...)
			})
		})
	}
}

// trials is how often a trial is made at most.
const trials = 5

// tried makes a trial, which returns what the command did too late. That fails the test, unless the
// machine kept others waiting, too, for longer than `bound`, which is how much the later of the two
// watchers may be held up: such a trial tells nothing, and is made again.
func tried(t *testing.T, bound time.Duration, trial func(t *testing.T, o *onlooker) []string) {
	t.Helper()
	for n := 1; ; n++ {
		o := &onlooker{stop: make(chan struct{})}
		var late []string
		passed := t.Run(fmt.Sprint("trial ", n), func(t *testing.T) {
			defer o.end()
			late = trial(t, o)
		})
		if !passed || len(late) == 0 {
			return
		}
		if o.heldUp() < bound || n == trials {
			t.Errorf("trial %d: %d beats at or after the end: %q; an onlooker was held up for %v at most", n, len(late), late, o.heldUp())
			return
		}
		t.Logf("trial %d tells nothing: an onlooker was held up for %v", n, o.heldUp())
	}
}

// onlooker notes how long the machine keeps those waiting who want to go on at a certain moment, as
// those do who watch a command: one thread for each processor.
type onlooker struct {
	stop  chan struct{}
	work  sync.WaitGroup
	worst atomic.Int64
}

func (o *onlooker) look() {
	for range runtime.NumCPU() {
		o.work.Go(func() {
			runtime.LockOSThread() // without end: the thread goes with it
			const step = 5 * time.Millisecond
			for due := supervise.SinceBoot() + step; ; due = supervise.SinceBoot() + step {
				select {
				case <-o.stop:
					return
				case <-time.After(due - supervise.SinceBoot()):
				}
				for late := int64(supervise.SinceBoot() - due); ; {
					if worst := o.worst.Load(); late <= worst || o.worst.CompareAndSwap(worst, late) {
						break
					}
				}
			}
		})
	}
}

func (o *onlooker) end() {
	close(o.stop)
	o.work.Wait()
}

func (o *onlooker) heldUp() time.Duration { return time.Duration(o.worst.Load()) }

func TestCommandNeverOutlivesThoseWhoWatchIt(t *testing.T) {
	eachWatcherFault(t, func(t *testing.T) (*running, *process, func()) {
		p := serveProcess(t)
		return workerRunBeating(t, []string{"--server", p.banner.URL, "--ttl", "2s"}, "deaf", "fork"), p, nil
	})
}

// eachWatcherFault breaks the processes which watch over a command, and the service that keeps its
// lease, each in turn. begin starts the service and the command, and returns what is to be looked
// at after that, or nil. Each row is something that befalls them.
func eachWatcherFault(t *testing.T, begin func(t *testing.T) (r *running, p *process, after func())) {
	t.Helper()
	signal := func(pid int, s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Errorf("signal %v to process %d: %v", s, pid, err)
		}
	}
	for _, row := range []struct {
		name  string
		fault func(r *running, p *process)
		code  int // of the command that runs the command; -1 = it is killed
		says  string
	}{
		{"run killed", func(r *running, _ *process) { signal(r.cmd.Process.Pid, syscall.SIGKILL) }, -1, ""},
		{"run stopped past the lease", func(r *running, _ *process) {
			signal(r.cmd.Process.Pid, syscall.SIGSTOP)
			r.inTime(r.path + ".forked") // while it is still stopped
			signal(r.cmd.Process.Pid, syscall.SIGCONT)
		}, tryLater, "was lost"},
		{"guard killed", func(r *running, _ *process) { signal(r.guard(), syscall.SIGKILL) }, failed, "guards it"},
		{"guard stopped, then the service stopped", func(r *running, p *process) {
			signal(r.guard(), syscall.SIGSTOP)
			signal(p.cmd.Process.Pid, syscall.SIGSTOP)
		}, tryLater, "was lost"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, p, after := begin(t)
			r.renewed()
			row.fault(r, p)
			r.exits(row.code, row.says)
			if after != nil {
				after()
			}
			r.inTime(r.path + ".forked")
		})
	}
}

// children lists the processes that a process has started.
func children(t testing.TB, pid int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	expect.NoError(t, "list the processes", err)
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if words := strings.Fields(rest); len(words) > 1 && words[1] == strconv.Itoa(pid) && words[0] != "Z" {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, child)
		}
	}
	return pids
}

// workerRunBeating starts `worker run` with flags, and what its command does besides beating.
func workerRunBeating(t testing.TB, flags []string, words ...string) *running {
	t.Helper()
	path := filepath.Join(t.TempDir(), "beats")
	args := append([]string{"worker", "run", "--wait", "30s"}, flags...)
	args = append(args, "orders", "--", os.Args[0], asCommand, path)
	r := start(t, append(args, append(words, "beat")...)...)
	r.path = path
	t.Cleanup(func() { // whatever the test has broken
		for _, path := range []string{path, path + ".forked"} {
			if b := readBeats(t, path); b.pid != 0 && !goneProcess(b.pid) {
				t.Errorf("process %d of %s outlived everything", b.pid, path)
				_ = syscall.Kill(b.pid, syscall.SIGKILL)
			}
		}
	})
	return r
}

// renewed waits until the command has seen its lease renewed.
func (r *running) renewed() {
	r.t.Helper()
	expect.Eventually(r.t, "the command sees a renewal", func() bool {
		select {
		case <-r.ended:
			r.t.Fatalf("it has ended with %d: %s", r.cmd.ProcessState.ExitCode(), r.stderr)
		default:
		}
		return readBeats(r.t, r.path).ends > 1
	})
}

// guard is the process id of the guard.
func (r *running) guard() int {
	r.t.Helper()
	pids := children(r.t, r.cmd.Process.Pid)
	if len(pids) != 1 {
		r.t.Fatalf("processes %v were started by worker run, want one", pids)
	}
	return pids[0]
}

// inTime checks that the command and what it has started have ended, and that neither has run at or
// after the end of its window.
func (r *running) inTime(paths ...string) {
	r.t.Helper()
	for _, path := range append([]string{r.path}, paths...) {
		if late := r.late(path); len(late) > 0 {
			r.t.Errorf("%s: %d beats at or after the end: %q", filepath.Base(path), len(late), late)
		}
	}
}

// late waits until a process has ended that beats, and returns its beats at or after the end of
// its window.
func (r *running) late(path string) []string {
	r.t.Helper()
	expect.Eventually(r.t, filepath.Base(path)+" is there, and its process has ended", func() bool {
		b := readBeats(r.t, path)
		return b.pid != 0 && goneProcess(b.pid)
	})
	b := readBeats(r.t, path)
	if b.all < enoughBeats {
		r.t.Errorf("%s: got %d beats, want %d at least", filepath.Base(path), b.all, enoughBeats)
	}
	return b.late
}
