//go:build check

package postgres_test

import (
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coatcheck/coatcheck/internal/postgres"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// open connects to a database with more parameters in its URL.
func open(t *testing.T, server *sqltest.Server, parameters string) *sql.DB {
	t.Helper()
	target := url.URL{Scheme: "postgres", User: url.UserPassword(sqltest.User, sqltest.Password), Host: server.Addr(), Path: "/" + server.Database(t), RawQuery: "sslmode=disable" + parameters}
	db, err := postgres.Open(target.String())
	expect.NoError(t, "Open", err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// The parameters are those of a URL that was written for pgx's driver, and a setting of the
// server's.
func TestStatementsAndTheirAnswers(t *testing.T) {
	db := open(t, sqltest.Start(t, sqltest.PostgreSQL), "&default_query_exec_mode=exec&statement_cache_capacity=9&description_cache_capacity=9&search_path=pg_catalog,public")
	changed := func(statement string, args ...any) int64 {
		t.Helper()
		result, err := db.ExecContext(t.Context(), statement, args...)
		expect.NoError(t, statement, err)
		rows, _ := result.RowsAffected() // always known
		return rows
	}
	const name = `it's "a" \ name, ü`
	changed("CREATE TABLE public.one (name TEXT, number BIGINT); INSERT INTO public.one VALUES ('first', NULL)")
	expect.Equal(t, "rows that an INSERT changed", changed("INSERT INTO public.one VALUES ($1, $2)", name, int64(-1<<63)), 1)
	expect.Equal(t, "rows that two statements changed, by the last", changed("UPDATE public.one SET number = 1 WHERE false; UPDATE public.one SET number = number"), 2)

	var text string
	var number int64
	row := db.QueryRowContext(t.Context(), "SELECT name, number FROM one WHERE name = $1 AND number < $2", name, 0)
	if err := row.Scan(&text, &number); err != nil || text != name || number != -1<<63 {
		t.Errorf("got %q, %d and %v, want %q and the lowest number", text, number, err, name)
	}
	var nothing sql.NullInt64
	if err := db.QueryRowContext(t.Context(), "SELECT number FROM one WHERE name = 'first'").Scan(&nothing); err != nil || nothing.Valid {
		t.Errorf("NULL came as %+v, %v", nothing, err)
	}
	expect.Error(t, "reading a row that is not there", db.QueryRowContext(t.Context(), "SELECT 1 WHERE false").Scan(&number), sql.ErrNoRows)

	_, err := db.ExecContext(t.Context(), "SELECT $1 FROM nowhere", 1)
	if fault, ok := errors.AsType[*pgconn.PgError](err); !ok || fault.Code != "42P01" {
		t.Errorf("a statement without its table: got %v, want the server's error 42P01", err)
	}
	if _, err = db.ExecContext(t.Context(), "SELECT $1", 1.5); err == nil {
		t.Error("an argument that is no number or text was taken")
	}
	if tx, err := db.BeginTx(t.Context(), nil); err == nil {
		t.Errorf("a transaction of database/sql began: %v", tx)
	}
}

// database/sql sends what fails on a connection of its own only once.
func TestPoolGivesNoConnectionThatWasLostOrIsInATransaction(t *testing.T) {
	server := sqltest.Start(t, sqltest.PostgreSQL)
	db := open(t, server, "")
	held := func() *sql.Conn {
		t.Helper()
		conn, err := db.Conn(t.Context())
		expect.NoError(t, "Conn", err)
		return conn
	}
	conn := held()
	_, err := conn.ExecContext(t.Context(), "BEGIN")
	expect.NoError(t, "BEGIN", err)
	_ = conn.Close()
	var begun bool
	conn = held()
	if err := conn.QueryRowContext(t.Context(), "SELECT now() <> statement_timestamp()").Scan(&begun); err != nil || begun {
		t.Errorf("the next one is in a transaction (%t) or broken (%v)", begun, err)
	}
	_ = conn.Close()

	server.Kill()
	server.Restart(t)
	time.Sleep(1100 * time.Millisecond) // until a connection counts as idle
	conn = held()
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "SELECT 1")
	expect.Error(t, "a statement after the server came back", err, nil)
}
