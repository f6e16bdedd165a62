//go:build check

package segment_test

import (
	"cmp"
	"context"
	"database/sql"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/segment"
)

var dialects = map[sqltest.Kind]segment.Dialect{sqltest.MariaDB: segment.DialectMySQL, sqltest.PostgreSQL: segment.DialectPostgreSQL}

var shared = struct {
	sync.Mutex

	servers map[sqltest.Kind]*sqltest.Server
}{servers: map[sqltest.Kind]*sqltest.Server{}}

// sharedServer is the server of a kind that all tests share which leave it unchanged. Each makes
// databases of its own there.
func sharedServer(t *testing.T, kind sqltest.Kind) *sqltest.Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	server := shared.servers[kind]
	if server == nil {
		var err error
		if server, err = sqltest.Launch(kind); err != nil {
			t.Fatalf("sqltest.Launch: got error %v, want none", err)
		}
		shared.servers[kind] = server
		segment.AtEnd(func() {
			if err := server.End(); err != nil {
				_, _ = os.Stderr.WriteString(err.Error() + "\n")
			}
		})
	}
	return server
}

// eachServer runs a test on the shared server of each kind.
func eachServer(t *testing.T, test func(t *testing.T, server *sqltest.Server)) {
	t.Helper()
	for _, kind := range []sqltest.Kind{sqltest.MariaDB, sqltest.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) { test(t, sharedServer(t, kind)) })
	}
}

// leafTable is a table of one server, and a way around the source.
type leafTable struct {
	*segment.LeafAlloc
	server   *sqltest.Server
	database string
	db       *sql.DB
}

// newLeafTable creates the table in a new database.
func newLeafTable(t *testing.T, server *sqltest.Server) leafTable {
	t.Helper()
	database := server.Database(t)
	db := server.OpenDatabase(t, database)
	leaf := segment.NewLeafAlloc(db, dialects[server.Kind()], segment.LeafConfig{})
	expect.NoError(t, "CreateTable", leaf.CreateTable(t.Context()))
	return leafTable{leaf, server, database, db}
}

// another is the same table as another process has it.
func (l leafTable) another(t *testing.T) *segment.LeafAlloc {
	t.Helper()
	return segment.NewLeafAlloc(l.server.OpenDatabase(t, l.database), dialects[l.server.Kind()], segment.LeafConfig{})
}

func (l leafTable) seed(t *testing.T, tag string, maxID, step int64) {
	t.Helper()
	expect.NoError(t, "Seed", l.Seed(t.Context(), tag, maxID, step, ""))
}

// tag reads a row.
func (l leafTable) tag(t *testing.T, name string) segment.LeafTag {
	t.Helper()
	tags, err := l.Tags(t.Context())
	expect.NoError(t, "Tags", err)
	at := slices.IndexFunc(tags, func(tag segment.LeafTag) bool { return tag.Tag == name })
	if at < 0 {
		t.Fatalf("%s is not in %v", name, tags)
	}
	return tags[at]
}

// setting changes a setting of a MariaDB server for the length of a test.
func setting(t *testing.T, server *sqltest.Server, name, value string) {
	t.Helper()
	db := server.OpenDatabase(t, "mysql")
	execute(t, db, "SET GLOBAL "+name+" = "+value)
	t.Cleanup(func() { // its context has ended
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "SET GLOBAL "+name+" = DEFAULT"); err != nil {
			t.Errorf("ExecContext: got error %v, want none", err)
		}
	})
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: got error %v", statement, err)
	}
}

// book is what takers were given, kept outside of any store.
type book struct {
	mu     sync.Mutex
	ranges []segment.Range
	faults int
}

// keep takes ranges of orders until the context ends or enough are in the book. Failures are
// recorded, and are no reason to stop.
func (b *book) keep(ctx context.Context, source segment.Source, enough int) {
	for ctx.Err() == nil && b.count() < enough {
		taken, err := source.Take(ctx, "orders", 0)
		b.note(taken, err)
	}
}

func (b *book) note(taken segment.Range, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.faults++
		return
	}
	b.ranges = append(b.ranges, taken)
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ranges)
}

// check looks at every id: none may be there twice. It returns the ranges in order.
func (b *book) check(t *testing.T) []segment.Range {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[int64]segment.Range{}
	for _, taken := range b.ranges {
		if taken.Lo < 0 || taken.Lo >= taken.Hi {
			t.Errorf("%+v is no range", taken)
		}
		for id := taken.Lo; id < taken.Hi; id += max(1, taken.Delta) {
			if before, twice := seen[id]; twice {
				t.Fatalf("%d is in %+v and in %+v", id, before, taken)
			}
			seen[id] = taken
		}
	}
	if len(seen) == 0 {
		t.Error("no range was given")
	}
	slices.SortFunc(b.ranges, func(a, b segment.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	return b.ranges
}

// docs/segments.md shows this.
func TestSegmentsPageWorks(t *testing.T) {
	ctx, table := t.Context(), newLeafTable(t, sharedServer(t, sqltest.MariaDB))
	table.seed(t, "orders", 1, 100)
	db := table.db
	leaf := segment.NewLeafAlloc(db, segment.DialectMySQL, segment.LeafConfig{}) // db is a *sql.DB
	ids := segment.New(leaf, segment.Config{})
	defer ids.Close()
	id, err := ids.Next(ctx, "orders")
	if err != nil || id != 1 {
		t.Errorf("the first id of a new tag: got %d, %v, want 1", id, err)
	}
}
