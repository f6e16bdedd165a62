package chaostest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Member is a process of a field, and the file that grows with everything that it gets done.
type Member struct {
	*Process

	File string
}

// String is what the process is called.
func (m *Member) String() string { return filepath.Base(m.File) }

// Progress is how many bytes the process has written.
func (m *Member) Progress() int64 { return Size(m.File) }

// Field is processes that play one role of the test binary at a store: see [Work].
type Field struct {
	T         *testing.T
	Redis     *redistest.SentinelSet // what its faults break; nil = something else
	Folder    string                 // where they write
	Lot       *rand.Rand
	Processes []*Member
	Stages    Stages

	Role    string
	Program string // that plays it, by its first argument; "" = the test binary
	Store   string
	Ack     int
	Numbers bool // no process waits for both replicas in the other words for it

	// Patience is how long a peer's process that gets nothing done is waited for while no other
	// begins to: then it waits for good, as after a message that was lost, and is replaced. With 0
	// no process may wait for good: one that does fails the test.
	Patience time.Duration
	Replaced int  // processes that waited for good
	Orderly  bool // a process that was asked to end has to exit with 0

	started int
}

// NewField returns a field without processes.
func NewField(t *testing.T, role, store string, ack int) *Field {
	t.Helper()
	return &Field{T: t, Folder: t.TempDir(), Lot: NewLot(t), Role: role, Store: store, Ack: ack}
}

// Fill starts processes until there are that many, and waits until each gets something done.
func (f *Field) Fill(n int) {
	f.T.Helper()
	for len(f.Processes) < n {
		f.Processes = append(f.Processes, f.Start(f.Store))
	}
	f.Wait()
}

// Start starts a process at a store. It is not yet one of the field's.
func (f *Field) Start(store string) *Member {
	f.T.Helper()
	f.started++
	file := filepath.Join(f.Folder, fmt.Sprintf("%04d%s", f.started, recordSuffix))
	task := []string{
		StoreVariable + "=" + store, FileVariable + "=" + file,
		fmt.Sprint(numberVariable, "=", f.started), fmt.Sprint(ackVariable, "=", f.Ack), fmt.Sprint(numbersVariable, "=", f.Numbers),
	}
	if f.Program != "" {
		return &Member{startSelf(f.T, f.Program, []string{f.Role}, task...), file}
	}
	return &Member{StartRole(f.T, f.Role, task...), file}
}

// Any is one of the processes, by lot.
func (f *Field) Any() *Member { return f.Processes[f.Lot.IntN(len(f.Processes))] }

// Others are all processes but one.
func (f *Field) Others(than *Member) []*Member {
	return slices.DeleteFunc(slices.Clone(f.Processes), func(p *Member) bool { return p == than })
}

// Replace puts a new process in place of one that has ended.
func (f *Field) Replace(old *Member) {
	f.Processes[slices.Index(f.Processes, old)] = f.Start(f.Store)
}

// Kill kills processes, whatever they are about to do, and puts others in their place.
func (f *Field) Kill(some ...*Member) {
	for _, p := range some {
		p.Kill()
	}
	for _, p := range some {
		f.Replace(p)
	}
}

// Stage notes what is broken from a moment on, by the clock of what the processes write.
func (f *Field) Stage(from int64, name string) { f.Stages = append(f.Stages, Stage{from, name}) }

// Wait waits until every process has got something done from now on.
func (f *Field) Wait() {
	f.T.Helper()
	f.WaitUnless(func() bool { return false })
}

// WaitUnless is the same, but ends as soon as over reports true.
func (f *Field) WaitUnless(over func() bool) {
	f.T.Helper()
	if f.Patience == 0 {
		f.wait(1, f.Processes, over)
		return
	}
	idle := idleFrom(1, f.Processes)
	fewest, since := len(f.Processes)+1, time.Now()
	for {
		waiting := idle()
		if len(waiting) == 0 || over() {
			return
		}
		if len(waiting) < fewest {
			fewest, since = len(waiting), time.Now()
		}
		if time.Since(since) > f.Patience {
			for _, p := range waiting {
				f.T.Logf("%v waits for good, and is replaced", p)
				f.Replaced++
				f.Kill(p)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Await waits until each of some processes has written that many bytes from now on.
func (f *Field) Await(bytes int64, processes ...*Member) {
	f.T.Helper()
	f.wait(bytes, processes, func() bool { return false })
}

func (f *Field) wait(bytes int64, processes []*Member, over func() bool) {
	f.T.Helper()
	idle := idleFrom(bytes, processes)
	Await(f.T, time.Minute, func() string {
		var names []string
		for _, p := range idle() {
			names = append(names, p.String())
		}
		if len(names) == 0 || over() {
			return ""
		}
		return fmt.Sprintf("these have not written %d bytes more: %s", bytes, strings.Join(names, ", "))
	})
}

// idleFrom returns what finds those that have not written that many bytes from now on.
func idleFrom(bytes int64, processes []*Member) func() []*Member {
	before := map[*Member]int64{}
	for _, p := range processes {
		before[p] = p.Progress()
	}
	return func() []*Member {
		return slices.DeleteFunc(slices.Clone(processes), func(p *Member) bool { return p.Progress() >= before[p]+bytes })
	}
}

// Freeze stops processes for a while; then they go on with what they were about to do.
func (f *Field) Freeze(span time.Duration, processes ...*Member) {
	f.While(func() { time.Sleep(span) }, processes...)
}

// While does something while processes are stopped.
func (f *Field) While(do func(), processes ...*Member) {
	for _, p := range processes {
		p.Stop()
	}
	do()
	for _, p := range processes {
		p.Resume()
	}
}

// Finish has all processes end in order.
func (f *Field) Finish() { f.End(f.Processes...) }

// End has processes end in order. A peer's that waits for good then, too, is killed.
func (f *Field) End(processes ...*Member) {
	f.T.Helper()
	for _, p := range processes {
		if f.Patience > 0 {
			late := time.AfterFunc(f.Patience, p.Kill)
			p.Finish()
			if !late.Stop() {
				f.T.Logf("%v waited for good when it was asked to end, and was killed", p)
				f.Replaced++
			}
			continue
		}
		p.Finish()
		if code := p.Code(); f.Orderly && code != 0 {
			f.T.Errorf("%v was asked to end: got exit code %d, want 0", p, code)
		}
	}
}

// RedisDoes has the master do something that may be done twice. Until it is told that it was done,
// it asks the server again that is the master by then.
func (f *Field) RedisDoes(words ...any) {
	f.T.Helper()
	Await(f.T, time.Minute, func() string {
		if err := f.Redis.Master().Client().Do(f.T.Context(), words...).Err(); err != nil {
			return fmt.Sprintf("%v: %v", words, err)
		}
		return ""
	})
}
