package chaostest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Member is a process of a field, which tells of itself by what it writes.
type Member interface {
	comparable
	fmt.Stringer     // what it is called
	Progress() int64 // rises with everything that it gets done
	Stop()
	Resume()
	Finish()
	Kill()
}

// Field is a Redis with two replicas, and processes that use it.
type Field[M Member] struct {
	T         *testing.T
	Redis     *redistest.SentinelSet
	Folder    string // where they write
	Lot       *rand.Rand
	Processes []M

	// Patience is how long a peer's process that gets nothing done is waited for while no other
	// begins to: then it waits for good, as after a message that was lost, and is replaced. With 0
	// no process may wait for good: one that does fails the test.
	Patience time.Duration
	Replaced int // processes that waited for good

	start   func(number int) M
	started int
}

// NewField starts a Redis. start is to start a process, with a number of its own.
func NewField[M Member](t *testing.T, start func(number int) M) *Field[M] {
	t.Helper()
	return &Field[M]{T: t, Redis: redistest.StartSentinel(t, 2), Folder: t.TempDir(), Lot: NewLot(t), start: start}
}

// Fill starts processes until there are that many, and waits until each gets something done.
func (f *Field[M]) Fill(n int) {
	f.T.Helper()
	for len(f.Processes) < n {
		f.Processes = append(f.Processes, f.start(f.Number()))
	}
	f.Wait()
}

// Number is one that no process has yet.
func (f *Field[M]) Number() int {
	f.started++
	return f.started
}

// Replace puts a new process in place of one that has ended.
func (f *Field[M]) Replace(old M) {
	f.Processes[slices.Index(f.Processes, old)] = f.start(f.Number())
}

// Wait waits until every process has got something done from now on.
func (f *Field[M]) Wait() {
	f.T.Helper()
	f.WaitUnless(func() bool { return false })
}

// WaitUnless is the same, but ends as soon as over reports true.
func (f *Field[M]) WaitUnless(over func() bool) {
	f.T.Helper()
	before := map[M]int64{}
	for _, p := range f.Processes {
		before[p] = p.Progress()
	}
	idle := func() []M {
		return slices.DeleteFunc(slices.Clone(f.Processes), func(p M) bool { return p.Progress() > before[p] })
	}
	if f.Patience > 0 {
		f.waitOrReplace(idle, over)
		return
	}
	Await(f.T, time.Minute, func() string {
		var names []string
		for _, p := range idle() {
			names = append(names, p.String())
		}
		if len(names) == 0 || over() {
			return ""
		}
		return "these get nothing done: " + strings.Join(names, ", ")
	})
}

// waitOrReplace waits until no process is idle, and replaces those that wait for good.
func (f *Field[M]) waitOrReplace(idle func() []M, over func() bool) {
	f.T.Helper()
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
				p.Kill()
				f.Replace(p)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Freeze stops processes for a while; then they go on with what they were about to do.
func (f *Field[M]) Freeze(span time.Duration, processes ...M) {
	for _, p := range processes {
		p.Stop()
	}
	time.Sleep(span)
	for _, p := range processes {
		p.Resume()
	}
}

// Finish has all processes end in order.
func (f *Field[M]) Finish() {
	for _, p := range f.Processes {
		f.End(p)
	}
}

// End has a process end in order. A peer's that waits for good then, too, is killed.
func (f *Field[M]) End(p M) {
	if f.Patience > 0 {
		late := time.AfterFunc(f.Patience, p.Kill)
		defer func() {
			if !late.Stop() {
				f.T.Logf("%v waited for good when it was asked to end, and was killed", p)
				f.Replaced++
			}
		}()
	}
	p.Finish()
}

// RedisDoes has the master do something that may be done twice. Until it is told that it was done,
// it asks the server again that is the master by then.
func (f *Field[M]) RedisDoes(words ...any) {
	f.T.Helper()
	Await(f.T, time.Minute, func() string {
		if err := f.Redis.Master().Client().Do(f.T.Context(), words...).Err(); err != nil {
			return fmt.Sprintf("%v: %v", words, err)
		}
		return ""
	})
}
