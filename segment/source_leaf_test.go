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
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

func TestLeafAlloc(t *testing.T) {
	eachServer(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		t.Run("gives Leaf's ranges", l.vectors)
		t.Run("gives a step that was asked for and keeps the row's", l.askedStep)
		t.Run("refuses tags that are not there", l.unknown)
		t.Run("refuses rows that were edited into nonsense, and leaves them", l.edited)
		t.Run("never goes beyond 2^63", l.exhausted)
		t.Run("seeds a tag once", l.seedOnce)
		t.Run("advances and never lowers", l.advances)
		t.Run("hands out nothing of a retired tag", l.retires)
		t.Run("lists tags", l.lists)
		t.Run("does nothing for a context that has ended", l.ended)
		t.Run("creates its table at once and again", l.creates)
		t.Run("keeps tags in a table of any name", l.otherTable)
		t.Run("hands out no id twice to many at once", l.manyAtOnce)
	})
}

func (l leafTable) vectors(t *testing.T) {
	l.seed(t, "vectors", 1, 2000)
	for i := range int64(5) {
		want := segment.Range{Lo: 1 + i*2000, Hi: 2001 + i*2000, Step: 2000}
		expect.Equal(t, fmt.Sprint("range ", i), take(t, l, "vectors", 0), want)
		expect.Equal(t, fmt.Sprint("max_id after range ", i), l.tag(t, "vectors").MaxID, want.Hi)
	}
}

func (l leafTable) askedStep(t *testing.T) {
	l.seed(t, "asked", 2001, 2000)
	end := int64(2001)
	for _, step := range []int64{2000, 4000, 8000, 1, 1_000_000} {
		want := segment.Range{Lo: end, Hi: end + step, Step: 2000}
		expect.Equal(t, fmt.Sprintf("range of step %d", step), take(t, l, "asked", step), want)
		end += step
	}
	if row := l.tag(t, "asked"); row.MaxID != end || row.Step != 2000 {
		t.Errorf("the row is %+v", row)
	}
	if _, err := l.Take(t.Context(), "asked", -1); !errors.Is(err, segment.ErrInvalid) {
		t.Errorf("a negative step: %v", err)
	}
}

func (l leafTable) unknown(t *testing.T) {
	l.seed(t, "Known", 1, 10)
	for _, tag := range []string{"unknown", "known", "KNOWN", "Known ", " Known", "", "a\x00b", "\xff", "' OR 1=1 --", strings.Repeat("a", 200), strings.Repeat("a", 100_000)} {
		_, err := l.Take(t.Context(), tag, 0)
		refused(t, err, segment.ErrNotFound)
		for what, change := range map[string]func(context.Context, string) (int64, error){
			"retire": l.Retire, "advance": func(ctx context.Context, tag string) (int64, error) { return l.Advance(ctx, tag, 1000) },
		} {
			if _, err := change(t.Context(), tag); !errors.Is(err, segment.ErrNotFound) {
				t.Errorf("%s %q: got error %v, want %v", what, tag, err, segment.ErrNotFound)
			}
		}
	}
	if row := l.tag(t, "Known"); row.MaxID != 1 || row.Step != 10 {
		t.Errorf("the row is %+v", row)
	}
}

func (l leafTable) edited(t *testing.T) {
	for i, row := range []struct {
		maxID, step int64
		want        error
	}{
		{1, 0, segment.ErrRetired},
		{math.MaxInt64, 0, segment.ErrRetired},
		{1, -1, segment.ErrBadRow},
		{1000, -2000, segment.ErrBadRow},
		{1, math.MinInt32, segment.ErrBadRow},
		{-1, 10, segment.ErrBadRow},
		{math.MinInt64, 10, segment.ErrBadRow},
	} {
		tag := fmt.Sprintf("edited-%d", i)
		l.seed(t, tag, 1, 10)
		execute(t, l.db, fmt.Sprintf("UPDATE leaf_alloc SET max_id = %d, step = %d WHERE biz_tag = '%s'", row.maxID, row.step, tag))
		for _, step := range []int64{0, 5, math.MaxInt64} {
			_, err := l.Take(t.Context(), tag, step)
			refused(t, err, row.want)
		}
		if now := l.tag(t, tag); now.MaxID != row.maxID || now.Step != row.step {
			t.Errorf("%+v was changed to %+v", row, now)
		}
	}
}

func (l leafTable) exhausted(t *testing.T) {
	l.seed(t, "last", math.MaxInt64-25, 10)
	take(t, l, "last", 0)
	for _, step := range []int64{16, 1 << 40, math.MaxInt64} {
		_, err := l.Take(t.Context(), "last", step)
		refused(t, err, segment.ErrExhausted)
	}
	if taken := take(t, l, "last", 15); taken.Hi != math.MaxInt64 || taken.Lo != math.MaxInt64-15 {
		t.Errorf("the last ids are %+v", taken)
	}
	for _, step := range []int64{0, 1} {
		_, err := l.Take(t.Context(), "last", step)
		refused(t, err, segment.ErrExhausted)
	}
	expect.Equal(t, "max_id of a tag without ids", l.tag(t, "last").MaxID, math.MaxInt64)
}

func (l leafTable) seedOnce(t *testing.T) {
	expect.NoError(t, "Seed seeded", l.Seed(t.Context(), "seeded", 5, 7, "Ünïcode ✓"))
	if err := l.Seed(t.Context(), "seeded", 1000, 7, ""); !errors.Is(err, segment.ErrTagExists) || !errors.Is(err, redisstore.ErrRefused) {
		t.Errorf("a second time: %v", err)
	}
	if row := l.tag(t, "seeded"); row.MaxID != 5 || row.Step != 7 || row.Description != "Ünïcode ✓" {
		t.Errorf("the row is %+v", row)
	}
	for _, row := range []struct {
		tag         string
		maxID, step int64
		description string
	}{
		{"", 1, 1, ""},
		{"a/b", 1, 1, ""},
		{"a b", 1, 1, ""},
		{strings.Repeat("a", 129), 1, 1, ""},
		{"ok", -1, 1, ""},
		{"ok", 1, 0, ""},
		{"ok", 1, -1, ""},
		{"ok", 1, math.MaxInt32 + 1, ""},
		{"ok", 1, 1, strings.Repeat("ä", 257)},
		{"ok", 1, 1, "\xff"},
	} {
		if err := l.Seed(t.Context(), row.tag, row.maxID, row.step, row.description); !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("Seed %+v: got error %v, want %v", row, err, segment.ErrInvalid)
		}
	}
	longest := strings.Repeat("a", 128)
	expect.Error(t, "Seed", l.Seed(t.Context(), longest, 0, math.MaxInt32, strings.Repeat("ä", 256)), nil)
	if taken := take(t, l, longest, 0); taken.Lo != 0 || taken.Hi != math.MaxInt32 {
		t.Errorf("its first range is %+v", taken)
	}
}

func (l leafTable) advances(t *testing.T) {
	l.seed(t, "advanced", 100, 10)
	for _, row := range []struct{ atLeast, want int64 }{{50, 100}, {100, 100}, {101, 101}, {5000, 5000}, {1, 5000}, {-1, 5000}, {math.MaxInt64, math.MaxInt64}} {
		if got, err := l.Advance(t.Context(), "advanced", row.atLeast); got != row.want || err != nil {
			t.Errorf("to at least %d: %d, %v; want %d", row.atLeast, got, err, row.want)
		}
	}
}

func (l leafTable) retires(t *testing.T) {
	l.seed(t, "retired", 1, 10)
	taken := take(t, l, "retired", 0)
	for range 2 {
		if most, err := l.Retire(t.Context(), "retired"); most != taken.Hi || err != nil {
			t.Errorf("%d, %v; want %d", most, err, taken.Hi)
		}
		for _, step := range []int64{0, 10} {
			_, err := l.Take(t.Context(), "retired", step)
			refused(t, err, segment.ErrRetired)
		}
	}
}

func (l leafTable) lists(t *testing.T) {
	before := time.Now().Add(-time.Minute)
	l.seed(t, "listed", 1, 10)
	execute(t, l.db, "UPDATE leaf_alloc SET update_time = '2001-02-03 04:05:06', description = NULL WHERE biz_tag = 'listed'")
	if row := l.tag(t, "listed"); row.Updated.Year() != 2001 || row.Description != "" {
		t.Errorf("the row is %+v", row)
	}
	take(t, l, "listed", 0)
	if row := l.tag(t, "listed"); row.Updated.Before(before) || row.Updated.After(time.Now().Add(time.Minute)) || row.Updated.Location() != time.UTC {
		t.Errorf("updated at %v, not about now", row.Updated)
	}
}

func (l leafTable) ended(t *testing.T) {
	l.seed(t, "ended", 1, 10)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Take(over, "ended", 0)
	refused(t, err, redisstore.ErrUnavailable)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the context's error is not in %v", err)
	}
	expect.Equal(t, "max_id of a tag that nothing was taken of", l.tag(t, "ended").MaxID, 1)
}

func (l leafTable) creates(t *testing.T) {
	database := l.server.Database(t)
	var all sync.WaitGroup
	for range 8 {
		db := l.server.OpenDatabase(t, database)
		leaf := segment.NewLeafAlloc(db, dialects[l.server.Kind()], segment.LeafConfig{})
		sequence := segment.NewSequence(db, dialects[l.server.Kind()], segment.SequenceConfig{})
		all.Go(func() {
			for range 3 {
				expect.Error(t, "CreateTable, twice", errors.Join(leaf.CreateTable(t.Context()), sequence.CreateTable(t.Context())), nil)
			}
		})
	}
	all.Wait()
	// One that lacks a column is reported.
	db := l.server.Open(t)
	execute(t, db, "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) PRIMARY KEY, max_id BIGINT)")
	if err := segment.NewLeafAlloc(db, dialects[l.server.Kind()], segment.LeafConfig{}).CreateTable(t.Context()); err == nil || !strings.Contains(err.Error(), "step") {
		t.Errorf("a table without a step: %v", err)
	}
	// And so is one that is not there.
	_, err := segment.NewLeafAlloc(l.server.Open(t), dialects[l.server.Kind()], segment.LeafConfig{}).Take(t.Context(), "any", 0)
	refused(t, err, redisstore.ErrUnavailable)
}

func (l leafTable) otherTable(t *testing.T) {
	schema := l.database
	if l.server.Kind() == sqltest.PostgreSQL {
		schema = "public"
	}
	for i, table := range []string{"Order", "select", schema + ".Tags_2"} {
		leaf := segment.NewLeafAlloc(l.db, dialects[l.server.Kind()], segment.LeafConfig{Table: table})
		expect.NoError(t, "CreateTable", leaf.CreateTable(t.Context()))
		expect.NoError(t, "Seed a", leaf.Seed(t.Context(), "a", int64(i), 10, ""))
		expect.Equal(t, "the first id of table "+table, take(t, leaf, "a", 0).Lo, int64(i))
	}
}

func (l leafTable) manyAtOnce(t *testing.T) {
	const processes, takers, each = 8, 3, 15
	l.seed(t, "many", 1, 20)
	var taken book
	var all sync.WaitGroup
	for p := range processes {
		leaf := l.another(t)
		for i := range takers {
			all.Go(func() {
				for range each {
					// as many as the row says, or 10, or 20
					taken.note(leaf.Take(t.Context(), "many", int64((p+i)%3*10)))
				}
			})
		}
	}
	all.Wait()
	ranges := taken.check(t)
	for i := 1; i < len(ranges); i++ {
		if ranges[i].Lo != ranges[i-1].Hi {
			t.Errorf("a gap between %+v and %+v, and nothing has failed", ranges[i-1], ranges[i])
		}
	}
	if taken.faults > 0 || len(ranges) != processes*takers*each || l.tag(t, "many").MaxID != ranges[len(ranges)-1].Hi {
		t.Errorf("%d ranges, %d faults, %+v", len(ranges), taken.faults, l.tag(t, "many"))
	}
}

// A row (1, 2000) that is drained fast moves as under Leaf, whichever database it is in, and its
// ids are 1 and on.
func TestDrainedRowMovesAsUnderLeaf(t *testing.T) {
	eachServer(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		l.seed(t, "orders", 1, 2000)
		var taken book
		s := segment.New(noted{l, &taken}, segment.Config{})
		defer s.Close()
		for want := int64(1); taken.count() < 5; want++ {
			if id, err := s.Next(t.Context(), "orders"); id != want || err != nil {
				t.Fatalf("got %d, %v, want %d", id, err, want)
			}
		}
		for i, maxID := range []int64{2001, 4001, 8001, 16001, 32001} {
			expect.Equal(t, fmt.Sprint("end of range ", i), taken.check(t)[i].Hi, maxID)
		}
	})
}

// noted writes all that a source gives into a book.
type noted struct {
	segment.Source

	book *book
}

func (n noted) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	taken, err := n.Source.Take(ctx, tag, step)
	n.book.note(taken, err)
	return taken, err
}

// What Leaf itself has created, and what was created otherwise than it should be.
func TestLeafAllocOnTablesOfOthers(t *testing.T) {
	server := sharedServer(t, sqltest.MariaDB)
	const columns = "description varchar(256) DEFAULT NULL, update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag))"
	for _, row := range []struct {
		name, create, mode string
		maxID              int64
		want               error
	}{
		{"Leaf's", "CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '', max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL, " + columns + " ENGINE=InnoDB", "", 1, nil},
		{"tags of any case", "CREATE TABLE leaf_alloc (biz_tag varchar(128) COLLATE utf8mb4_general_ci, max_id bigint NOT NULL, step int NOT NULL, " + columns, "", 1, nil},
		{"unsigned", "CREATE TABLE leaf_alloc (biz_tag varchar(128), max_id bigint unsigned NOT NULL, step int unsigned NOT NULL, " + columns, "", 1, nil},
		{"max_id too narrow", "CREATE TABLE leaf_alloc (biz_tag varchar(128), max_id int NOT NULL, step int NOT NULL, " + columns, "", math.MaxInt32 - 5, redisstore.ErrUnavailable},
		{"max_id too narrow, and cut off", "CREATE TABLE leaf_alloc (biz_tag varchar(128), max_id int NOT NULL, step int NOT NULL, " + columns, "''", math.MaxInt32 - 5, segment.ErrBadRow},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.mode != "" {
				setting(t, server, "sql_mode", row.mode)
			}
			db := server.Open(t)
			execute(t, db, row.create)
			l := leafTable{segment.NewLeafAlloc(db, segment.DialectMySQL, segment.LeafConfig{}), server, "", db}
			l.seed(t, "orders", row.maxID, 10)
			taken, err := l.Take(t.Context(), "orders", 0)
			if row.want != nil {
				refused(t, err, row.want)
			} else if want := (segment.Range{Lo: 1, Hi: 11, Step: 10}); taken != want || err != nil {
				t.Errorf("got %+v, %v; want %+v", taken, err, want)
			}
			if _, err := l.Take(t.Context(), "ORDERS", 0); row.want == nil && !errors.Is(err, segment.ErrNotFound) {
				t.Errorf("in capitals: %v", err)
			}
			if now := l.tag(t, "orders"); row.want == nil && now.MaxID != 11 || row.want != nil && now.MaxID != row.maxID {
				t.Errorf("the row is %+v", now)
			}
		})
	}
}

// In a table without transactions another taker comes between the two statements of a fetch.
func TestLeafAllocOnATableWithoutTransactionsHandsOutNoIDTwice(t *testing.T) {
	server := sharedServer(t, sqltest.MariaDB)
	l := newLeafTable(t, server)
	execute(t, l.db, "ALTER TABLE leaf_alloc ENGINE = MyISAM")
	l.seed(t, "orders", 1, 10)
	var taken book
	var all sync.WaitGroup
	for range 8 {
		leaf := l.another(t)
		all.Go(func() { taken.keep(t.Context(), leaf, 300) })
	}
	all.Wait()
	taken.check(t)
	if taken.faults == 0 {
		t.Error("no taker came between: does this test still do what it says?")
	}
}
