// Package postgres is a driver of database/sql for PostgreSQL, on pgconn, the part of pgx that
// speaks the protocol. pgx's own driver has the codecs of all types, which made a tenth of the
// program. This one takes numbers and texts as arguments, and gives every column as text, which
// database/sql turns into what is asked for. It makes neither prepared statements nor transactions
// of database/sql: BEGIN and COMMIT are statements.
//
// A statement goes in one piece, with its arguments beside it, so that a pooler of connections may
// stand between. The end of a context ends the call also where the server is silent; what the
// statement did is then unknown.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Open returns connections to the database of a URL, postgres://user:password@host:port/database,
// with libpq's parameters after a question mark. It connects to nothing yet.
func Open(url string) (*sql.DB, error) {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	for _, pgx := range []string{"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity"} {
		delete(config.RuntimeParams, pgx) // meant for pgx's driver; the server would refuse them
	}
	return sql.OpenDB(connector{config}), nil
}

type connector struct{ config *pgconn.Config }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	server, err := pgconn.ConnectConfig(ctx, c.config)
	if err != nil {
		return nil, err
	}
	return &conn{server, time.Now()}, nil
}

// Driver is part of [driver.Connector]; only [sql.DB.Driver] asks for it.
func (connector) Driver() driver.Driver { return nil }

type conn struct {
	server *pgconn.PgConn
	used   time.Time // last
}

var (
	_ driver.ExecerContext   = (*conn)(nil)
	_ driver.QueryerContext  = (*conn)(nil)
	_ driver.SessionResetter = (*conn)(nil)
)

var errStatements = errors.New("postgres: the driver runs statements only")

// Prepare is part of [driver.Conn].
func (*conn) Prepare(string) (driver.Stmt, error) { return nil, errStatements }

// Begin is part of [driver.Conn].
func (*conn) Begin() (driver.Tx, error) { return nil, errStatements }

// closeWithin is how long a connection may take to say goodbye.
const closeWithin = 5 * time.Second

func (c *conn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return c.server.Close(ctx)
}

// idle is how long an unused connection is taken for a live one.
const idle = time.Second

// ResetSession has the pool drop a connection that is in a transaction or was lost.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.server.IsClosed() || c.server.TxStatus() != 'I' || time.Since(c.used) > idle && c.server.Ping(ctx) != nil {
		return driver.ErrBadConn
	}
	c.used = time.Now()
	return nil
}

func (c *conn) ExecContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.run(ctx, statement, args)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(result.CommandTag.RowsAffected()), nil
}

func (c *conn) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	result, err := c.run(ctx, statement, args)
	if err != nil {
		return nil, err
	}
	return &rows{result}, nil
}

// run sends a statement, of several parts if without arguments, and returns the last result.
func (c *conn) run(ctx context.Context, statement string, args []driver.NamedValue) (*pgconn.Result, error) {
	if c.server.IsClosed() {
		return nil, driver.ErrBadConn
	}
	values, err := texts(args)
	if err != nil {
		return nil, err
	}
	result := &pgconn.Result{}
	if len(values) > 0 {
		result = c.server.ExecParams(ctx, statement, values, nil, nil, nil).Read()
		err = result.Err
	} else {
		var all []*pgconn.Result
		if all, err = c.server.Exec(ctx, statement).ReadAll(); len(all) > 0 {
			result = all[len(all)-1]
		}
	}
	if pgconn.SafeToRetry(err) {
		return nil, driver.ErrBadConn // nothing was sent
	}
	return result, err
}

// texts writes arguments as PostgreSQL reads them; it knows their types.
func texts(args []driver.NamedValue) (all [][]byte, err error) {
	for _, arg := range args {
		switch value := arg.Value.(type) {
		case int64:
			all = append(all, strconv.AppendInt(nil, value, 10))
		case string:
			all = append(all, []byte(value))
		default:
			return nil, fmt.Errorf("postgres: argument %d is a %T: only numbers and texts are taken", arg.Ordinal, value)
		}
	}
	return all, nil
}

// rows are a result that was read as a whole.
type rows struct{ result *pgconn.Result }

func (r *rows) Columns() (names []string) {
	for _, field := range r.result.FieldDescriptions {
		names = append(names, field.Name)
	}
	return names
}

func (*rows) Close() error { return nil }

func (r *rows) Next(into []driver.Value) error {
	if len(r.result.Rows) == 0 {
		return io.EOF
	}
	for i, value := range r.result.Rows[0] {
		into[i] = nil
		if value != nil {
			into[i] = string(value)
		}
	}
	r.result.Rows = r.result.Rows[1:]
	return nil
}
