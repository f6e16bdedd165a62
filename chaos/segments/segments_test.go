//go:build check

package segments

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// Whatever is killed, no id is handed out twice, and none is lost but what was fetched ahead.
func TestNoIDIsHandedOutTwiceWhateverIsKilled(t *testing.T) {
	chaostest.Beside(t)
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
	} {
		t.Run(row.name, func(t *testing.T) {
			chaostest.Beside(t) // each has servers of its own
			f := row.field(t)
			chaostest.EachRound(t, f.Lot, chaostest.Chosen(t, kinds), func(kind chaostest.Fault[*field]) {
				f.during(kind.Name, func() { kind.Strike(f) })
			})
			chaostest.Await(t, time.Minute, func() string {
				if found := check(t, f.Folder, f.finished); found.ids < 1000 {
					return found.String()
				}
				return ""
			})
			found := f.finish("coatcheck, "+row.name, false)
			switch {
			case found.wrong() > 0:
				t.Errorf("got ids twice, of no range or skipped, want none: %v\n%s", found, found.report())
			// in a row of its own a tag has no others than these
			case f.Role == "leaf" && found.gaps > f.lost:
				t.Errorf("%v, where no more than %d Takes were cut off", found, f.lost)
			case found.ids < 1000:
				t.Errorf("%v: too few to say anything", found)
			}
		})
	}
}

// The same processes with an allocator that takes no lock are found to hand out ids twice, though
// nothing is killed.
func TestAllocatorWithoutATransactionIsFound(t *testing.T) {
	chaostest.Beside(t)
	maria := startSQL(t, sqltest.MariaDB)
	f := newField(t, "unlocked", maria.database(t, "leaf").String(), *processes, maria)
	f.during("none", func() { f.await(10 * tags * step) })
	f.during(oneByOne, func() { kinds[0].Strike(f) })
	found := f.finish("reads `max_id`, then writes it", true)
	if found.twice.N == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}

// One process alone with an allocator that writes down late hands out nothing twice, until it is
// killed.
func TestAllocatorThatWritesDownLateIsFound(t *testing.T) {
	chaostest.Beside(t)
	maria := startSQL(t, sqltest.MariaDB)
	f := newField(t, "late", maria.database(t, "leaf").String(), 1, maria)
	f.await(10 * tags * step)
	if found := check(t, f.Folder, nil); found.wrong() > 0 {
		t.Errorf("before it is killed: %v\n%s", found, found.report())
	}
	f.during(oneByOne, func() {
		for range 5 {
			f.kill(f.Processes[0])
			f.await(tags * step)
		}
	})
	found := f.finish("writes `max_id` down late", true)
	if found.twice.N == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}
