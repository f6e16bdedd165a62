package chaostest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// Member is a process of a field, which tells of itself by what it writes.
type Member interface {
	comparable
	fmt.Stringer     // what it is called
	Progress() int64 // rises with everything that it gets done
	Stop()
	Resume()
	Finish()
}

// Field is a Redis with two replicas, and processes that use it.
type Field[M Member] struct {
	T         *testing.T
	Redis     *redistest.SentinelSet
	Folder    string // where they write
	Lot       *rand.Rand
	Processes []M

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
	before := map[M]int64{}
	for _, p := range f.Processes {
		before[p] = p.Progress()
	}
	Await(f.T, time.Minute, func() string {
		var idle []string
		for _, p := range f.Processes {
			if p.Progress() <= before[p] {
				idle = append(idle, p.String())
			}
		}
		if len(idle) > 0 {
			return "these get nothing done: " + strings.Join(idle, ", ")
		}
		return ""
	})
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
		p.Finish()
	}
}

// RedisDoes has the master do something. An error is one of the test, which goes on.
func (f *Field[M]) RedisDoes(words ...any) {
	f.T.Helper()
	if err := f.Redis.Master().Client().Do(f.T.Context(), words...).Err(); err != nil {
		f.T.Errorf("%v: %v", words, err)
	}
}
