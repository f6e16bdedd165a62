package segment

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects that there are.
const (
	DialectMySQL      Dialect = "mysql" // and MariaDB
	DialectPostgreSQL Dialect = "postgresql"
)

// identifier is a table's name, with the schema that it is in or without.
var identifier = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

// tagName reports whether the tables can hold a text as a tag. No other is asked for.
func tagName(text string) bool { return names.Valid(text) && len(text) <= 128 }

func checkDialect(dialect Dialect) error {
	if dialect != DialectMySQL && dialect != DialectPostgreSQL {
		return fmt.Errorf("segment: dialect %q: %s or %s", dialect, DialectMySQL, DialectPostgreSQL)
	}
	return nil
}

func checkTable(table string) error {
	if !identifier().MatchString(table) {
		return fmt.Errorf("segment: table %q: a letter or _, then letters, digits and _, up to 63, and perhaps a schema of the same "+
			"kind with a dot in front", table)
	}
	return nil
}

// quoted quotes a table's name for SQL. The case of its letters counts.
func (d Dialect) quoted(table string) string {
	quote := "`"
	if d == DialectPostgreSQL {
		quote = `"`
	}
	return quote + strings.ReplaceAll(table, ".", quote+"."+quote) + quote
}

// rebound writes the question marks of a statement as the dialect has them.
func (d Dialect) rebound(statement string) string {
	if d != DialectPostgreSQL {
		return statement
	}
	parts := strings.Split(statement, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// begin is the statements that begin a transaction. PostgreSQL reads what others have committed,
// whatever its default is, or every second of two takers would fail; and it ends the transaction of
// a silent client, or a link that breaks silently would keep the tag's row locked for hours.
func (d Dialect) begin(timeout time.Duration) string {
	if d == DialectPostgreSQL {
		return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL idle_in_transaction_session_timeout = " +
			strconv.FormatInt(timeout.Milliseconds()+1, 10)
	}
	return "START TRANSACTION"
}

// database runs transactions, and always knows whether one can have happened.
type database struct {
	db      *sql.DB
	dialect Dialect
	timeout time.Duration // of one transaction
}

// beginnings is how often a transaction is begun. A pooled connection may have died since its last
// use, and beginning twice does no harm.
const beginnings = 3

// transact runs one transaction. It does not use [sql.Tx], whose Commit takes no context: on a
// database that hangs it may never return.
//
// What fails before COMMIT is sent is a refusal: the database rolls back a transaction whose
// connection has ended. What fails from then on is an unknown outcome. No statement is sent twice:
// database/sql repeats what a driver calls [driver.ErrBadConn] on another connection, but not on
// one that is held as this one is.
func (d *database) transact(ctx context.Context, op string, steps func(context.Context, *transaction) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	tx, err := d.begin(ctx)
	if err != nil {
		return failure(ctx, op, ErrDatabase, err)
	}
	defer tx.end()
	if err := steps(ctx, tx); err != nil {
		if errors.Is(err, redisstore.ErrRefused) {
			tx.rollBack(ctx)
			return err
		}
		return failure(ctx, op, ErrDatabase, err)
	}
	if err := ctx.Err(); err != nil {
		return failure(ctx, op, ErrDatabase, err)
	}
	if err := tx.close(ctx, "COMMIT"); err != nil {
		return failure(ctx, op, redisstore.ErrUnknownOutcome, err)
	}
	return nil
}

func (d *database) begin(ctx context.Context) (*transaction, error) {
	for attempt := 1; ; attempt++ {
		conn, err := d.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		_, err = conn.ExecContext(ctx, d.dialect.begin(d.timeout))
		if err == nil {
			return &transaction{conn: conn, dialect: d.dialect, open: true}, nil
		}
		(&transaction{conn: conn, open: true}).end()
		if attempt == beginnings || ctx.Err() != nil {
			return nil, err
		}
	}
}

// create creates a table and checks its columns.
func (d *database) create(ctx context.Context, op, create, probe string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, created := d.db.ExecContext(ctx, create)
	// In PostgreSQL one of two that create it at once may fail, and one without the right to create
	// fails even if the table is there.
	if _, err := d.db.ExecContext(ctx, probe); err != nil {
		return failure(ctx, op, ErrDatabase, errors.Join(created, err))
	}
	return nil
}

// failure is an error with its class of outcome. It keeps the context's error reachable.
func failure(ctx context.Context, op string, class, cause error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(cause, ended) {
		cause = fmt.Errorf("%w (%w)", cause, ended)
	}
	return &redisstore.Error{Op: op, Class: class, Cause: cause}
}

// transaction is one that has begun, on a connection of its own.
type transaction struct {
	conn    *sql.Conn
	dialect Dialect
	open    bool // neither committed nor rolled back, as far as is known
}

// exec runs a statement and returns how many rows it changed, and LAST_INSERT_ID (MySQL).
func (tx *transaction) exec(ctx context.Context, statement string, args ...any) (changed, number int64, err error) {
	result, err := tx.conn.ExecContext(ctx, tx.dialect.rebound(statement), args...)
	if err != nil {
		return 0, 0, err
	}
	if changed, err = result.RowsAffected(); err != nil || tx.dialect != DialectMySQL {
		return changed, 0, err
	}
	number, err = result.LastInsertId()
	return changed, number, err
}

// row reads one row. It returns [sql.ErrNoRows] if there is none.
func (tx *transaction) row(ctx context.Context, statement string, args []any, into ...any) error {
	return tx.conn.QueryRowContext(ctx, tx.dialect.rebound(statement), args...).Scan(into...)
}

// rollBack ends the transaction. If that fails, the end of the connection does the same.
func (tx *transaction) rollBack(ctx context.Context) { _ = tx.close(ctx, "ROLLBACK") }

func (tx *transaction) close(ctx context.Context, statement string) error {
	_, err := tx.conn.ExecContext(ctx, statement)
	tx.open = err != nil
	return err
}

// end gives the connection back to the pool, or, if the transaction may be open on it, ends it.
func (tx *transaction) end() {
	if tx.open {
		_ = tx.conn.Raw(func(any) error { return driver.ErrBadConn }) // has the pool drop it
	}
	_ = tx.conn.Close() // of what was dropped already there is nothing to close
}
