//go:build check && linux

package resolvers

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// paymentsTable is the effect. Nothing in it refuses a second payment of a key.
const paymentsTable = `CREATE TABLE payments (id varchar(64) PRIMARY KEY, client_key varchar(64) NOT NULL)`

// database is where a service keeps its payments.
type database struct {
	t           testing.TB
	server      *sqltest.Server // nil = SQLite
	name        string          // of the database, or the file
	environment []string        // that tells a service where it is
}

// newDatabase makes a database with the tables.
func newDatabase(t testing.TB, kind sqltest.Kind, tables ...string) *database {
	t.Helper()
	d := &database{t: t}
	if kind == "" {
		d.name = filepath.Join(t.TempDir(), "payments.db")
		d.environment = []string{"DATABASE=" + d.name}
		tables = append([]string{"PRAGMA journal_mode = WAL"}, tables...)
	} else {
		d.server = sqltest.Start(t, kind)
		d.name = d.server.Database(t)
		host, port, err := net.SplitHostPort(d.server.Addr())
		expect.NoError(t, "the server's address", err)
		d.environment = []string{
			"PGHOST=" + host, "PGPORT=" + port, "PGUSER=" + sqltest.User, "PGPASSWORD=" + sqltest.Password, "PGDATABASE=" + d.name, "PGSSLMODE=disable",
			"SQL_KIND=" + string(kind), "SQL_ADDRESS=" + d.server.Addr(), "SQL_DATABASE=" + d.name,
		}
	}
	for _, table := range tables {
		d.ask(table)
	}
	return d
}

// ask runs a statement, and returns its rows as texts.
func (d *database) ask(text string) (rows [][]string) {
	d.t.Helper()
	if d.server == nil {
		return d.askSQLite(text)
	}
	db, err := sqltest.Connect(d.server.Kind(), d.server.Addr(), d.name)
	expect.NoError(d.t, "connecting", err)
	defer db.Close()
	found, err := db.QueryContext(context.Background(), text)
	if err != nil {
		d.t.Fatalf("%s: got error %v, want none", text, err)
	}
	defer found.Close()
	columns, err := found.Columns()
	expect.NoError(d.t, text, err)
	for found.Next() {
		cells, places := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			places[i] = &cells[i]
		}
		expect.NoError(d.t, text, found.Scan(places...))
		row := make([]string, len(columns))
		for i, cell := range cells {
			row[i] = cell.String
		}
		rows = append(rows, row)
	}
	expect.NoError(d.t, text, found.Err())
	return rows
}

// sqlite runs a statement of standard input by Debian's Python, which has SQLite.
const sqlite = `import json, sqlite3, sys
print(json.dumps([[str(cell) for cell in row] for row in sqlite3.connect(sys.argv[1], 60, isolation_level=None).execute(sys.stdin.read())]))`

func (d *database) askSQLite(text string) (rows [][]string) {
	d.t.Helper()
	command := exec.CommandContext(context.Background(), "/usr/bin/python3", "-c", sqlite, d.name)
	command.Stdin = strings.NewReader(text)
	var wrong bytes.Buffer
	command.Stderr = &wrong
	out, err := command.Output()
	if err != nil {
		d.t.Fatalf("%s: got error %v, want none\n%s", text, err, &wrong)
	}
	expect.NoError(d.t, "the rows of "+text, json.Unmarshal(out, &rows))
	return rows
}

// payments are the ids of all payments, by key.
func (d *database) payments() map[string][]string {
	d.t.Helper()
	found := map[string][]string{}
	for _, row := range d.ask("SELECT client_key, id FROM payments") {
		found[row[0]] = append(found[row[0]], row[1])
	}
	return found
}
