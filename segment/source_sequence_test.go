//go:build check

package segment_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

// newSequence creates a sequence table in the database of another, with the tag orders.
func newSequence(t *testing.T, l leafTable, step int64) *segment.Sequence {
	t.Helper()
	sequence := l.sequence(t)
	expect.NoError(t, "CreateTable, Seed orders", errors.Join(sequence.CreateTable(t.Context()), sequence.Seed(t.Context(), "orders", 0, step)))
	return sequence
}

// sequence is the sequence table in the same database, as another process has it.
func (l leafTable) sequence(t *testing.T) *segment.Sequence {
	t.Helper()
	return segment.NewSequence(l.server.OpenDatabase(t, l.database), dialects[l.server.Kind()], segment.SequenceConfig{})
}

func TestSequence(t *testing.T) {
	eachServer(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		s := sequenceTable{newSequence(t, l, 100), l}
		t.Run("gives what each number stands for", s.numbers)
		t.Run("refuses tags that are not there", s.unknown)
		t.Run("seeds a tag once", s.seedOnce)
		t.Run("refuses rows that were edited into nonsense", s.edited)
		t.Run("hands out no id twice to many at once", s.manyAtOnce)
		t.Run("never goes beyond 2^63", s.exhausted)
	})
}

type sequenceTable struct {
	*segment.Sequence
	leafTable leafTable
}

func (s sequenceTable) seed(t *testing.T, tag string, first int64) {
	t.Helper()
	expect.NoError(t, "Seed", s.Seed(t.Context(), tag, first, 100))
}

func (s sequenceTable) numbers(t *testing.T) {
	before := take(t, s, "orders", 0)
	for _, step := range []int64{0, 1, 5000} { // what is asked for does not count
		taken := take(t, s, "orders", step)
		if taken.Lo != before.Hi || taken.Lo%100 != 0 || taken.Hi != taken.Lo+100 || taken.Step != 100 || taken.Delta > 1 {
			t.Errorf("after %+v came %+v", before, taken)
		}
		before = taken
	}
	s.seed(t, "later", 1_000_007)
	other := take(t, s, "later", 0)
	if other.Lo <= 1_000_007 || (other.Lo-1_000_007)%100 != 0 || other.Hi != other.Lo+100 {
		t.Errorf("of a tag that begins at 1000007: %+v", other)
	}
	if taken := take(t, s, "orders", 0); taken.Lo <= before.Lo {
		t.Errorf("after %+v came %+v", before, taken)
	}
}

func (s sequenceTable) unknown(t *testing.T) {
	for _, tag := range []string{"unknown", "Orders", "orders ", "", "a\x00b", "\xff", "' OR 1=1 --", strings.Repeat("a", 129)} {
		_, err := s.Take(t.Context(), tag, 0)
		refused(t, err, segment.ErrNotFound)
	}
}

func (s sequenceTable) seedOnce(t *testing.T) {
	s.seed(t, "seeded", 5)
	if err := s.Seed(t.Context(), "seeded", 6, 100); !errors.Is(err, segment.ErrTagExists) || !errors.Is(err, redisstore.ErrRefused) {
		t.Errorf("a second time: %v", err)
	}
	for _, row := range []struct {
		tag         string
		first, step int64
	}{{"", 0, 100}, {"a b", 0, 100}, {strings.Repeat("a", 129), 0, 100}, {"ok", -1, 100}, {"ok", 0, 0}, {"ok", 0, math.MaxInt32 + 1}} {
		expect.Error(t, fmt.Sprintf("seeding %+v", row), s.Seed(t.Context(), row.tag, row.first, row.step), segment.ErrInvalid)
	}
}

func (s sequenceTable) edited(t *testing.T) {
	s.seed(t, "edited", 0)
	for _, row := range []struct {
		first, step int64
		want        error
	}{
		{-1, 100, segment.ErrBadRow}, {math.MinInt64, 100, segment.ErrBadRow}, {0, 0, segment.ErrBadRow}, {0, -1, segment.ErrBadRow},
		{math.MaxInt64, 100, segment.ErrExhausted}, {math.MaxInt64 - 99, 100, segment.ErrExhausted}, {0, math.MaxInt64, segment.ErrExhausted},
	} {
		execute(t, s.leafTable.db, fmt.Sprintf("UPDATE segment_sequence SET first_id = %d, step = %d WHERE stub = 'edited'", row.first, row.step))
		_, err := s.Take(t.Context(), "edited", 0)
		refused(t, err, row.want)
	}
}

func (s sequenceTable) manyAtOnce(t *testing.T) {
	const processes, each = 8, 40
	books := map[string]*book{"many-a": {}, "many-b": {}}
	var all sync.WaitGroup
	for tag := range books {
		s.seed(t, tag, 0)
	}
	for range processes {
		sequence := s.leafTable.sequence(t)
		for tag, taken := range books {
			all.Go(func() {
				for range each {
					taken.note(sequence.Take(t.Context(), tag, 0))
				}
			})
		}
	}
	all.Wait()
	for tag, taken := range books {
		taken.check(t)
		if taken.faults > 0 {
			t.Errorf("%s: %d faults, and nothing is broken", tag, taken.faults)
		}
	}
}

// The last number of a step of 100 is 2^63/100 − 1: one more would end beyond.
func (s sequenceTable) exhausted(t *testing.T) {
	const last = math.MaxInt64/100 - 1
	next := map[sqltest.Kind]string{
		sqltest.MariaDB:    "ALTER TABLE segment_sequence AUTO_INCREMENT = %d",
		sqltest.PostgreSQL: "ALTER TABLE segment_sequence ALTER COLUMN id RESTART WITH %d",
	}[s.leafTable.server.Kind()]
	execute(t, s.leafTable.db, fmt.Sprintf(next, int64(last)))
	if taken := take(t, s, "orders", 0); taken.Lo != last*100 || taken.Hi != (last+1)*100 {
		t.Errorf("the last range is %+v", taken)
	}
	for range 2 {
		_, err := s.Take(t.Context(), "orders", 0)
		refused(t, err, segment.ErrExhausted)
	}
	execute(t, s.leafTable.db, fmt.Sprintf(next, int64(math.MaxInt64)))
	_, err := s.Take(t.Context(), "orders", 0)
	// the database's own last number is refused, or its end is
	if !errors.Is(err, redisstore.ErrRefused) {
		t.Errorf("at the end of all numbers: %v", err)
	}
	_, err = s.Take(t.Context(), "orders", 0)
	refused(t, err, redisstore.ErrRefused)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Take(over, "orders", 0)
	refused(t, err, redisstore.ErrUnavailable)
}
