package segment_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

// badDriver is a database that has one tag, (1, 10), and that fails at one statement.
type badDriver struct {
	bad   string // the statement's first word
	fault error  // what it says then

	mu     sync.Mutex
	counts map[string]int
	maxID  int64
}

func (d *badDriver) Connect(context.Context) (driver.Conn, error) { return &badConn{driver: d}, nil }
func (d *badDriver) Driver() driver.Driver                        { return nil }

// badConn is one connection of it. What was updated counts at the commit.
type badConn struct {
	driver  *badDriver
	pending int64
}

func (*badConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (*badConn) Close() error                        { return nil }
func (*badConn) Begin() (driver.Tx, error)           { return nil, errors.New("not begun") }

func (c *badConn) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	d := c.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	word, _, _ := strings.Cut(statement, " ")
	d.counts[word]++
	switch word {
	case "UPDATE":
		c.pending += 10
	case "COMMIT": // also of one whose answer is bad
		d.maxID, c.pending = d.maxID+c.pending, 0
	}
	if word == d.bad {
		return nil, d.fault
	}
	return badResult{d.maxID + c.pending}, nil
}

func (c *badConn) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	d := c.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	word, _, _ := strings.Cut(statement, " ")
	d.counts[word]++
	if word == d.bad {
		return nil, d.fault
	}
	return &badRows{values: []driver.Value{"orders", d.maxID + c.pending, int64(10)}}, nil
}

type badResult struct{ number int64 }

func (r badResult) LastInsertId() (int64, error) { return r.number, nil }
func (badResult) RowsAffected() (int64, error)   { return 1, nil }

type badRows struct{ values []driver.Value }

func (*badRows) Columns() []string { return []string{"biz_tag", "max_id", "step"} }
func (*badRows) Close() error      { return nil }

func (r *badRows) Next(into []driver.Value) error {
	if r.values == nil {
		return io.EOF
	}
	copy(into, r.values)
	r.values = nil
	return nil
}

// database/sql sends a statement again, on another connection, when the driver calls the connection
// bad. It does so with the one that begins the transaction, which takes nothing; each of the others
// is sent once, and so is the whole transaction.
func TestNothingThatTakesIsSentTwice(t *testing.T) {
	for _, row := range []struct {
		bad  string
		want map[string]int
		err  error
	}{
		{"", map[string]int{"START": 1, "UPDATE": 1, "SELECT": 1, "COMMIT": 1}, nil},
		{"START", map[string]int{"START": 3}, redisstore.ErrUnavailable},
		{"UPDATE", map[string]int{"START": 1, "UPDATE": 1}, redisstore.ErrUnavailable},
		{"SELECT", map[string]int{"START": 1, "UPDATE": 1, "SELECT": 1}, redisstore.ErrUnavailable},
		{"COMMIT", map[string]int{"START": 1, "UPDATE": 1, "SELECT": 1, "COMMIT": 1}, redisstore.ErrUnknownOutcome},
	} {
		for _, fault := range []error{driver.ErrBadConn, errors.New("the lock was not granted")} {
			t.Run(row.bad+" "+fault.Error(), func(t *testing.T) {
				bad := &badDriver{bad: row.bad, fault: fault, counts: map[string]int{}, maxID: 1}
				db := sql.OpenDB(bad)
				defer db.Close()
				leaf := segment.NewLeafAlloc(db, segment.DialectMySQL, segment.LeafConfig{})
				taken, err := leaf.Take(t.Context(), "orders", 0)
				if row.err == nil {
					if want := (segment.Range{Lo: 1, Hi: 11, Step: 10}); taken != want || err != nil {
						t.Errorf("got %+v, %v; want %+v", taken, err, want)
					}
				} else {
					refused(t, err, row.err)
				}
				for word, sent := range bad.counts {
					expect.Equal(t, "how often "+word+" was sent", sent, row.want[word])
				}
				if db.Stats().InUse > 0 {
					t.Error("a connection was not given back")
				}
				if row.err != nil && db.Stats().Idle > 0 {
					t.Error("a connection with an open transaction is in the pool")
				}
				// Whatever was in doubt is a gap.
				bad.bad = ""
				next, err := leaf.Take(t.Context(), "orders", 0)
				if err != nil || row.err != nil && next.Lo < 1 || row.bad == "COMMIT" && next.Lo != 11 {
					t.Errorf("then %+v, %v", next, err)
				}
			})
		}
	}
}
