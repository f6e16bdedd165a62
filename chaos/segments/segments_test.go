//go:build check

package segments

import (
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// beside lets a test run beside others, where all have to be short; at length each has the machine
// to itself.
func beside(t *testing.T) {
	t.Helper()
	if *chaostest.Rounds == 1 || chaostest.Proving() {
		t.Parallel()
	}
}

// Whatever is killed, no id is handed out twice, and none is lost but what was fetched ahead.
func TestNoIDIsHandedOutTwiceWhateverIsKilled(t *testing.T) {
	beside(t)
	for _, row := range []struct {
		name  string
		field func(t *testing.T) *field
	}{
		{"Redis", func(t *testing.T) *field {
			redis := startRedis(t)
			return newField(t, "redis", redis.URL(), *processes, redis)
		}},
		{"LeafAlloc on MariaDB", func(t *testing.T) *field {
			maria := startSQL(t, sqltest.MariaDB)
			return newField(t, "leaf", maria.database(t, "leaf").String(), *processes, maria)
		}},
		{"LeafAlloc on PostgreSQL", func(t *testing.T) *field {
			postgres := startSQL(t, sqltest.PostgreSQL)
			return newField(t, "leaf", postgres.database(t, "leaf").String(), *processes, postgres)
		}},
		{"Sequence on MariaDB", func(t *testing.T) *field {
			maria := startSQL(t, sqltest.MariaDB)
			return newField(t, "sequence", maria.database(t, "sequence").String(), *processes, maria)
		}},
		{"Striped over three stores", func(t *testing.T) *field {
			maria, postgres := startSQL(t, sqltest.MariaDB), startSQL(t, sqltest.PostgreSQL)
			return newField(t, "striped", stripes(t, 3, maria, postgres), *processes, maria, postgres)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if chaostest.Proving() {
				t.Parallel() // each has servers of its own
			}
			f := row.field(t)
			f.breakAll()
			f.awaitIDs(1000)
			found := f.finish()
			f.prove("coatcheck, "+row.name, false)
			switch {
			case found.faulty():
				t.Errorf("got ids twice, of no range or skipped, want none: %v\n%s", found, found.samples())
			// in a row of its own a tag has no others than these
			case f.role == "leaf" && found.gaps > f.lost:
				t.Errorf("%v, where no more than %d Takes were cut off", found, f.lost)
			case found.ids < 1000:
				t.Errorf("%v: too few to say anything", found)
			}
		})
	}
}

// breakAll breaks everything that is wanted while processes draw ids.
func (f *field) breakAll() {
	f.t.Helper()
	wanted := chaostest.Wanted(f.t)
	for round := range *chaostest.Rounds {
		for _, i := range f.lot.Perm(len(kinds)) {
			if !wanted(kinds[i].name) || kinds[i].long && *chaostest.Rounds == 1 && *chaostest.Faults == "" && !chaostest.Proving() {
				continue
			}
			f.t.Logf("round %d: %s", round+1, kinds[i].name)
			f.during(kinds[i].name, kinds[i].on(f))
		}
	}
}

// The same processes with an allocator that takes no lock are found to hand out ids twice, though
// nothing is killed.
func TestAllocatorWithoutATransactionIsFound(t *testing.T) {
	beside(t)
	maria := startSQL(t, sqltest.MariaDB)
	f := newField(t, "unlocked", maria.database(t, "leaf").String(), *processes, maria)
	f.during("none", func() { f.await(10 * tags * step) })
	f.during("processes killed, one after another", kinds[0].on(f))
	found := f.finish()
	f.prove("reads `max_id`, then writes it", true)
	if found.twice.n == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}

// One process alone with an allocator that writes down late hands out nothing twice, until it is
// killed.
func TestAllocatorThatWritesDownLateIsFound(t *testing.T) {
	beside(t)
	maria := startSQL(t, sqltest.MariaDB)
	f := newField(t, "late", maria.database(t, "leaf").String(), 1, maria)
	f.await(10 * tags * step)
	if found := check(t, f.folder, nil); found.faulty() {
		t.Errorf("before it is killed: %v\n%s", found, found.samples())
	}
	f.during("processes killed, one after another", func() {
		for range 5 {
			f.kill(f.processes[0])
			f.await(tags * step)
		}
	})
	found := f.finish()
	f.prove("writes `max_id` down late", true)
	if found.twice.n == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}
