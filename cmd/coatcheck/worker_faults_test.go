package main

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/linktest"
	"github.com/coatcheck/coatcheck/internal/redistest"
)

// Each row is a way of losing what grants the lease. The command that ran under it, and what it has started, deaf to SIGTERM, must be gone before its
// window ends by the server's clock.
func TestCommandNeverOutlivesItsWindow(t *testing.T) {
	for _, row := range []struct {
		name  string
		begin func(t *testing.T) (flags []string, fault func())
	}{
		{"service killed", func(t *testing.T) ([]string, func()) {
			p := serve(t)
			return []string{"--server", p.banner.URL}, p.kill
		}},
		{"service stopped", func(t *testing.T) ([]string, func()) {
			p := serve(t)
			return []string{"--server", p.banner.URL}, func() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
		}},
		{"service in a black hole", func(t *testing.T) ([]string, func()) {
			link := linktest.Start(t, strings.TrimPrefix(serve(t).banner.URL, "http://"))
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
			link := linktest.Start(t, redistest.Start(t).Addr())
			return []string{"--redis", "redis://" + link.Addr(), "--new-pools", "trust"}, link.Swallow
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			const ttl = 2 * time.Second
			tried(t, allowed(ttl, 0).margin/2, func(t *testing.T, o *onlooker) []string {
				flags, fault := row.begin(t)
				r := workerRunBeating(t, append(flags, "--ttl", ttl.String()), "deaf", "fork")
				r.renewed()
				o.look()
				fault()
				if code := r.code(); code != tryLater || !strings.Contains(r.stderr.String(), "was lost") || !strings.Contains(r.stderr.String(), "start the command again") {
					t.Errorf("%d %s", code, r.stderr)
				}
				return append(r.late(r.path), r.late(r.path+".forked")...)
			})
		})
	}
}

// trials is how often a trial is made at most.
const trials = 5

// tried makes a trial, which returns what the command did too late. That fails the test, unless the machine kept others waiting, too, for longer than `bound`, which is
// how much the later of the two watchers may be held up: such a trial tells nothing, and is made again.
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
			t.Errorf("trial %d: %d beats at or behind the end: %q; an onlooker was held up for %v at most", n, len(late), late, o.heldUp())
			return
		}
		t.Logf("trial %d tells nothing: an onlooker was held up for %v", n, o.heldUp())
	}
}

// onlooker notes how long the machine keeps those waiting who want to go on at a certain moment, as those do who watch a command: one thread for each processor.
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
			for due := sinceBoot() + step; ; due = sinceBoot() + step {
				select {
				case <-o.stop:
					return
				case <-time.After(due - sinceBoot()):
				}
				for late := int64(sinceBoot() - due); ; {
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
		p := serve(t)
		return workerRunBeating(t, []string{"--server", p.banner.URL, "--ttl", "2s"}, "deaf", "fork"), p, nil
	})
}

// eachWatcherFault breaks the processes which watch over a command, and the service that keeps its lease, each in turn. begin starts the service and the command, and
// returns what is to be looked at behind that, or nil. Each row is something that befalls them.
func eachWatcherFault(t *testing.T, begin func(t *testing.T) (r *running, p *process, after func())) {
	t.Helper()
	signal := func(pid int, s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Error(err)
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
			if code := r.code(); code != row.code || !strings.Contains(r.stderr.String(), row.says) {
				t.Errorf("%d %s", code, r.stderr)
			}
			if after != nil {
				after()
			}
			r.inTime(r.path + ".forked")
		})
	}
}
