//go:build check

package segments

import (
	"context"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// field is stores, and processes that draw ids from them.
type field struct {
	*chaostest.Field

	servers  []store
	finished map[string]bool // that have ended in order
	lost     int             // Takes of a tag whose answer may be lost
	kills    int64
	counted  []evidence.Row // what happened during each kind of fault
	wrong    int64          // ids that were found so far
	drawn    int64          // … and that were told
}

// store is a server that ids come from.
type store interface {
	Kill()
	restart(t testing.TB) // with what it has confirmed
}

// newField starts processes in a role.
func newField(t *testing.T, role, stores string, n int, servers ...store) *field {
	t.Helper()
	f := &field{Field: chaostest.NewField(t, role, stores, 0), servers: servers, finished: map[string]bool{}}
	f.Orderly = true
	f.Fill(n)
	return f
}

// killServer kills a server.
func (f *field) killServer(one store) {
	one.Kill()
	f.lost += len(f.Processes)
	f.kills++
}

// kill kills some processes, and counts them.
func (f *field) kill(some ...*chaostest.Member) {
	f.lost += len(some)
	f.kills += int64(len(some))
	f.Kill(some...)
}

// sometime returns after a while that is drawn by lot: a few periods at most.
func (f *field) sometime() { time.Sleep(time.Duration(f.Lot.Int64N(int64(3 * period)))) }

// await waits until each process has written down so many records from now on.
func (f *field) await(records int64) {
	f.T.Helper()
	f.Await(records*recordBytes, f.Processes...)
}

// during breaks something, waits until all go on, and counts what has happened meanwhile: every
// kill, every id that was told, and what was found.
func (f *field) during(name string, strike func()) {
	f.T.Helper()
	before := f.kills
	strike()
	f.await(20)
	if chaostest.Proving() {
		f.counted = append(f.counted, evidence.Row{Suite: "segments", Promise: evidence.Segments, Layer: evidence.Processes, Fault: name, Faults: f.kills - before})
		f.count(check(f.T, f.Folder, f.finished))
	}
}

// count adds what was found since to what is broken now.
func (f *field) count(found *findings) {
	if len(f.counted) == 0 {
		return
	}
	now, wrong := &f.counted[len(f.counted)-1], found.wrong()
	now.Operations += int64(found.ids) - f.drawn
	now.Violations += wrong - f.wrong
	f.drawn, f.wrong = int64(found.ids), wrong
}

// finish has all processes end in order, and writes down what was found of whom.
func (f *field) finish(who string, peer bool) *findings {
	f.T.Helper()
	f.Finish()
	for _, p := range f.Processes {
		f.finished[p.String()] = true
	}
	found := check(f.T, f.Folder, f.finished)
	f.T.Log(found)
	f.count(found)
	for _, row := range f.counted {
		row.Who, row.Peer = who, peer
		chaostest.Prove(f.T, row)
	}
	return found
}

// seeded makes the table of a role's store, with all tags.
func seeded(t testing.TB, role string, one database) {
	t.Helper()
	ctx := t.Context()
	create := func(ctx context.Context) error { return one.leaf().CreateTable(ctx) }
	seed := func(ctx context.Context, tag string) error { return one.leaf().Seed(ctx, tag, 1, step, "") }
	if role == "sequence" {
		create = func(ctx context.Context) error { return one.sequence().CreateTable(ctx) }
		seed = func(ctx context.Context, tag string) error { return one.sequence().Seed(ctx, tag, 1, step) }
	}
	expect.NoError(t, "creating a table", create(ctx))
	for which := range tags {
		expect.NoError(t, "seeding a tag", seed(ctx, tagOf(which)))
	}
}
