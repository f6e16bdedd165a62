package locks

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// field is a Redis and the processes that take locks there.
type field struct {
	t         *testing.T
	role      string
	redis     *redistest.SentinelSet
	ack       int
	folder    string
	lot       *rand.Rand
	processes []*process
	started   int
	scenes    int
	void      []string // scenes in which Sentinel did something by itself
}

// process is one of them.
type process struct {
	cmd    *exec.Cmd
	number int
	folder string
	ended  chan struct{}
}

// newField starts a Redis with two replicas, and processes in a role, whose writes that many replicas have to confirm.
func newField(t *testing.T, role string, ack int) *field {
	t.Helper()
	f := &field{t: t, role: role, redis: redistest.StartSentinel(t, 2), ack: ack, folder: t.TempDir(), lot: newLot(t)}
	f.scene()
	for range *processes {
		f.processes = append(f.processes, f.start(f.url()))
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

// scene has all processes use other names from now on, so that histories stay short.
func (f *field) scene() {
	f.t.Helper()
	f.scenes++
	name := filepath.Join(f.folder, sceneFile)
	if err := os.WriteFile(name+".new", []byte(strconv.Itoa(f.scenes)), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		f.t.Fatal(err)
	}
}

// url is where processes find Redis: the lock that many have written knows one server only.
func (f *field) url() string {
	if f.role == "naive" {
		return f.redis.Master().URL()
	}
	return f.redis.URL()
}

// start starts one more process, which finds Redis at a URL.
func (f *field) start(url string) *process {
	f.started++
	return startProcess(f.t, f.role, url, f.folder, f.started, f.ack)
}

// startProcess starts a process in a role. It dies with the test binary, however that ends.
func startProcess(t testing.TB, role, url, folder string, number, ack int) *process {
	p := &process{number: number, folder: folder, ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role, redisVariable+"="+url, folderVariable+"="+folder,
		fmt.Sprintf("%s=%d", numberVariable, number), fmt.Sprintf("%s=%d", ackVariable, ack))
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
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
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

// grants is how many the process has been granted.
func (p *process) grants() int64 { return sizeOf(journalFile(p.folder, p.number) + ".grants") }

// size is how many bytes the process has written.
func (p *process) size() int64 { return sizeOf(journalFile(p.folder, p.number)) }

// sizeOf is a file's size, 0 if it is not there yet.
func sizeOf(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// holds tells whether the last thing that the process has written is that it holds something.
func (p *process) holds() bool {
	text, err := os.ReadFile(journalFile(p.folder, p.number))
	if err != nil {
		return false
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	return bytes.HasPrefix(text[bytes.LastIndexByte(text, '\n')+1:], []byte("still"))
}

// wait waits until every process has been granted something.
func (f *field) wait() {
	f.t.Helper()
	before := map[*process]int64{}
	for _, p := range f.processes {
		before[p] = p.grants()
	}
	await(f.t, time.Minute, func() string {
		var idle []string
		for _, p := range f.processes {
			if p.grants() == before[p] {
				idle = append(idle, strconv.Itoa(p.number))
			}
		}
		if len(idle) > 0 {
			return "these are granted nothing: " + strings.Join(idle, ", ")
		}
		return ""
	})
}

// holder is a process that holds something, or did a moment ago.
func (f *field) holder() *process {
	var found *process
	await(f.t, time.Minute, func() string {
		for _, i := range f.lot.Perm(len(f.processes)) {
			if found = f.processes[i]; found.holds() {
				return ""
			}
		}
		return "nobody holds anything"
	})
	return found
}

// replace puts a new process in place of one that has ended.
func (f *field) replace(old *process) {
	f.processes[slices.Index(f.processes, old)] = f.start(f.url())
}

// epoch counts the failovers that the sentinels have made.
func (f *field) epoch() int {
	f.t.Helper()
	client := f.sentinel()
	defer client.Close()
	master, err := client.Master(f.t.Context(), masterName).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	epoch, err := strconv.Atoi(master["config-epoch"])
	if err != nil {
		f.t.Fatal(err)
	}
	return epoch
}

// masterName is what the sentinels call the master.
const masterName = "coatcheck"

// sentinel is a client of one of the sentinels.
func (f *field) sentinel() *redis.SentinelClient {
	address, _, _ := strings.Cut(strings.TrimPrefix(f.redis.URL(), "redis+sentinel://"), ",")
	return redis.NewSentinelClient(&redis.Options{Addr: address})
}

// beside starts processes behind a link, and returns how to cut it: nothing that is sent comes through until it is mended. It ends them.
func (f *field) beside(n int) (cut, mend, end func()) {
	var gone atomic.Bool
	proxy := redistest.StartProxy(f.t, f.redis.Master().Addr(), func([]byte) (redistest.Fate, func()) {
		if gone.Load() {
			return redistest.Swallow, nil
		}
		return redistest.Pass, nil
	})
	var remote []*process
	for range n {
		p := f.start(proxy.URL())
		remote = append(remote, p)
		f.processes = append(f.processes, p)
	}
	f.wait()
	cut = func() { gone.Store(true); proxy.SetDeaf(true) }
	mend = func() { gone.Store(false); proxy.SetDeaf(false) }
	end = func() {
		for _, p := range remote {
			p.finish()
			f.processes = slices.DeleteFunc(f.processes, func(other *process) bool { return other == p })
		}
	}
	return cut, mend, end
}

// await waits until check returns "", and fails the test with what it says if that takes too long.
func await(t testing.TB, limit time.Duration, check func() (complaint string)) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, complaint)
		}
	}
}
