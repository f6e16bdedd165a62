//go:build check

package segments

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// field is stores, and processes that draw ids from them.
type field struct {
	t         *testing.T
	lot       *rand.Rand
	folder    string // where they write
	role      string
	stores    string
	servers   []store
	processes []*process
	finished  map[string]bool // that have ended in order
	started   int
	lost      int // Takes of a tag whose answer may be lost
	kills     int64
	counted   []evidence.Row // what happened during each kind of fault
	wrong     int64          // ids that were found so far
	told      int64          // … and that were told
}

// store is a server that ids come from.
type store interface {
	Kill()
	restart(t testing.TB) // with what it has confirmed
}

// process is a process that draws ids, and the file that it writes.
type process struct {
	*chaostest.Process

	file string
}

func (p *process) String() string { return filepath.Base(p.file) }

// progress is how many bytes the process has written.
func (p *process) progress() int64 { return chaostest.Size(p.file) }

// newField starts processes in a role.
func newField(t *testing.T, role, stores string, n int, servers ...store) *field {
	t.Helper()
	f := &field{t: t, lot: chaostest.NewLot(t), folder: t.TempDir(), role: role, stores: stores, servers: servers, finished: map[string]bool{}}
	for range n {
		f.processes = append(f.processes, f.start())
	}
	f.await(1)
	return f
}

func (f *field) start() *process {
	f.started++
	file := filepath.Join(f.folder, fmt.Sprintf("%04d.ids", f.started))
	return &process{chaostest.StartRole(f.t, roleVariable+"="+f.role, storesVariable+"="+f.stores, fileVariable+"="+file), file}
}

// killServer kills a server.
func (f *field) killServer(one store) {
	one.Kill()
	f.lost += len(f.processes)
	f.kills++
}

// kill kills some processes, whatever they are about to do, and puts others in their place.
func (f *field) kill(some ...*process) {
	for _, p := range some {
		p.Kill()
	}
	f.lost += len(some)
	f.kills += int64(len(some))
	for _, p := range some {
		f.processes[slices.Index(f.processes, p)] = f.start()
	}
}

// any is one of the processes, by lot.
func (f *field) any() *process { return f.processes[f.lot.IntN(len(f.processes))] }

// sometime returns after a while that is drawn by lot: a few periods at most.
func (f *field) sometime() { time.Sleep(time.Duration(f.lot.Int64N(int64(3 * period)))) }

// await waits until each process has written down so many records from now on.
func (f *field) await(records int64) {
	f.t.Helper()
	before := map[*process]int64{}
	for _, p := range f.processes {
		before[p] = p.progress()
	}
	chaostest.Await(f.t, time.Minute, func() string {
		var idle []string
		for _, p := range f.processes {
			if p.progress() < before[p]+records*recordBytes {
				idle = append(idle, p.String())
			}
		}
		if len(idle) > 0 {
			return "these get too little done: " + strings.Join(idle, ", ")
		}
		return ""
	})
}

// awaitIDs waits until clients have been told that many ids in all.
func (f *field) awaitIDs(n int) {
	f.t.Helper()
	chaostest.Await(f.t, time.Minute, func() string {
		if found := check(f.t, f.folder, f.finished); found.ids < n {
			return found.String()
		}
		return ""
	})
}

// during breaks something, waits until all go on, and counts what has happened meanwhile: every
// kill, every id that was told, and what was found.
func (f *field) during(name string, strike func()) {
	f.t.Helper()
	before := f.kills
	strike()
	f.await(20)
	if chaostest.Proving() {
		f.counted = append(f.counted, evidence.Row{Suite: "segments", Promise: evidence.Segments, Layer: evidence.Processes, Fault: name, Faults: f.kills - before})
		f.count(check(f.t, f.folder, f.finished))
	}
}

// count adds what was found since to what is broken now.
func (f *field) count(found *findings) {
	if len(f.counted) == 0 {
		return
	}
	now, wrong := &f.counted[len(f.counted)-1], found.twice.n+found.strange.n+found.skipped.n
	now.Operations += int64(found.ids) - f.told
	now.Violations += wrong - f.wrong
	f.told, f.wrong = int64(found.ids), wrong
}

// prove writes down what was counted.
func (f *field) prove(who string, peer bool) {
	for _, row := range f.counted {
		row.Who, row.Peer = who, peer
		chaostest.Prove(f.t, row)
	}
}

// finish has all processes end in order, and tells what was found.
func (f *field) finish() *findings {
	f.t.Helper()
	for _, p := range f.processes {
		p.Finish()
		if code := p.Code(); code != 0 {
			f.t.Errorf("%v ended with %d", p, code)
		}
		f.finished[p.String()] = true
	}
	found := check(f.t, f.folder, f.finished)
	f.t.Log(found)
	f.count(found)
	return found
}

// seeded makes the table of a role's store, with all tags.
func seeded(t testing.TB, role string, one database, nameOf func(tag string) string) {
	t.Helper()
	ctx := t.Context()
	create := func(ctx context.Context) error { return one.leaf().CreateTable(ctx) }
	seed := func(ctx context.Context, tag string) error { return one.leaf().Seed(ctx, tag, 1, step, "") }
	if role == "sequence" {
		create = func(ctx context.Context) error { return one.sequence().CreateTable(ctx) }
		seed = func(ctx context.Context, tag string) error { return one.sequence().Seed(ctx, tag, 1, step) }
	}
	expect.NoError(t, "create", create(ctx))
	for which := range tags {
		expect.NoError(t, "seed", seed(ctx, nameOf(tagOf(which))))
	}
}
