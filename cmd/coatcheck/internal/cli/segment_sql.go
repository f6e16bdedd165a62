package cli

import (
	"cmp"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/postgres"
	"github.com/coatcheck/coatcheck/segment"
)

// How many connections are kept to one database.
const (
	sqlConnections = 16
	sqlIdle        = 4
	sqlIdleTime    = time.Minute
	// behind a proxy or a failover an older one may lead to the wrong server.
	sqlLifetime = 10 * time.Minute
)

// openSQL returns connections to the database of a URL, mysql://user:password@host:port/database or
// postgres://…, with the driver's own parameters after a question mark. It connects to nothing
// yet. Its errors hold nothing of the URL.
func openSQL(text string) (*sql.DB, segment.Dialect, error) {
	target, dialect, err := config.ParseSQL(text)
	if err != nil {
		return nil, "", err
	}
	open := openMySQL
	if dialect == segment.DialectPostgreSQL {
		open = openPostgreSQL
	}
	db, err := open(target)
	if err != nil {
		return nil, "", err
	}
	db.SetMaxOpenConns(sqlConnections)
	db.SetMaxIdleConns(sqlIdle)
	db.SetConnMaxIdleTime(sqlIdleTime)
	db.SetConnMaxLifetime(sqlLifetime)
	return db, dialect, nil
}

func openMySQL(target *url.URL) (*sql.DB, error) {
	config, err := mysql.ParseDSN("/?" + target.RawQuery)
	if err != nil {
		return nil, errors.New("the driver does not take one of the parameters after the question mark")
	}
	config.Net, config.Addr, config.DBName = "tcp", net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), "3306")), target.Path[1:]
	config.User = target.User.Username()
	config.Passwd, _ = target.User.Password()
	config.Logger = &mysql.NopLogger{} // what it says is in the error as well
	if !target.Query().Has("interpolateParams") {
		config.InterpolateParams = true // one round trip for a statement instead of two
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func openPostgreSQL(target *url.URL) (*sql.DB, error) {
	db, err := postgres.Open(target.String())
	if err != nil {
		return nil, errors.New("the driver does not take the URL: look at what is after the question mark")
	}
	return db, nil
}

// passingSQL are the errors of a database that may pass: it starts or stops, has no room, is a
// replica, or another transaction changed the same row.
var passingSQL = struct {
	numbers []uint16 // of MySQL and MariaDB
	classes []string // of SQLSTATE, in PostgreSQL
}{
	numbers: []uint16{1040, 1053, 1203, 1205, 1213, 1226, 1290, 1792, 1836},
	classes: []string{"08", "25", "40", "53", "55", "57"},
}

// answeredSQL reports whether a database has refused a statement for good, and for lack of a table.
func answeredSQL(err error) (refused, noTable bool) {
	if fault, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return !slices.Contains(passingSQL.numbers, fault.Number), fault.Number == 1146
	}
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && len(fault.Code) == 5 {
		return !slices.Contains(passingSQL.classes, fault.Code[:2]), fault.Code == "42P01"
	}
	return false, false
}
