package ids

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// field is a Redis and the processes that stamp with it.
type field struct {
	t         *testing.T
	role      string
	redis     *redistest.SentinelSet
	ack       int
	folder    string
	lot       *rand.Rand
	processes []*process
	started   int
}

// process is a stamping process, and the file that it writes.
type process struct {
	cmd   *exec.Cmd
	file  string
	ended chan struct{}
}

// newField starts a Redis with two replicas, and processes in a role.
func newField(t *testing.T, role string) *field {
	t.Helper()
	f := &field{t: t, role: role, redis: redistest.StartSentinel(t, 2), ack: 2, folder: t.TempDir(), lot: newLot(t)}
	f.declare()
	for range *processes {
		f.processes = append(f.processes, f.start())
	}
	f.wait()
	return f
}

func newLot(t *testing.T) *rand.Rand {
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-seed=%d", from)
	return rand.New(rand.NewPCG(from, 0))
}

// start starts one more process. It dies with the test binary, however that ends.
func (f *field) start() *process {
	f.started++
	p := &process{file: filepath.Join(f.folder, fmt.Sprintf("%04d.ids", f.started)), ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), roleVariable+"="+f.role, redisVariable+"="+f.url(), fileVariable+"="+p.file, fmt.Sprintf("%s=%d", ackVariable, f.ack))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the child dies with the thread that started it
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // it was killed
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(p.kill)
	return p
}

// url is where processes find Redis: the allocator that many have written knows one server only.
func (f *field) url() string {
	if f.role == "masked" {
		return f.redis.Master().URL()
	}
	return f.redis.URL()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

func (p *process) signal(signal syscall.Signal) { _ = p.cmd.Process.Signal(signal) } // it may have ended

// finish asks the process to end in order.
func (p *process) finish() {
	p.signal(syscall.SIGTERM)
	<-p.ended
}

// stamped is how many bytes the process has written.
func (p *process) stamped() int64 {
	info, err := os.Stat(p.file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// wait waits until every process stamps.
func (f *field) wait() {
	f.t.Helper()
	before := make([]int64, len(f.processes))
	for i, p := range f.processes {
		before[i] = p.stamped()
	}
	await(f.t, time.Minute, func() string {
		var silent []string
		for i, p := range f.processes {
			if p.stamped() <= before[i] {
				silent = append(silent, filepath.Base(p.file))
			}
		}
		if len(silent) > 0 {
			return "these do not stamp: " + strings.Join(silent, ", ")
		}
		return ""
	})
}

// any is one of the processes, by lot.
func (f *field) any() *process { return f.processes[f.lot.IntN(len(f.processes))] }

// replace puts a new process in place of one that has ended.
func (f *field) replace(old *process) {
	for i, p := range f.processes {
		if p == old {
			f.processes[i] = f.start()
		}
	}
}

// declare declares the pool new.
func (f *field) declare() {
	f.t.Helper()
	store := openStore(f.t, f.redis.URL())
	shape, _ := shape()
	if err := poolsOf(store).Create(f.t.Context(), pool, shape, ttl); err != nil {
		f.t.Fatal(err)
	}
}

// await waits until check returns "", and fails the test with what it says if that takes too long.
func await(t testing.TB, limit time.Duration, check func() (complaint string)) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, complaint)
		}
	}
}
