package cli

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

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
// postgres://…, with the driver's own parameters behind a question mark. It connects to nothing
// yet. Its errors hold nothing of the URL.
func openSQL(text string) (*sql.DB, segment.Dialect, error) {
	target, dialect, err := parseSQL(text)
	if err != nil {
		return nil, "", err
	}
	open := openMySQL
	if dialect == segment.PostgreSQL {
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

var sqlSchemes = map[string]segment.Dialect{
	"mysql": segment.MySQL, "mariadb": segment.MySQL, "postgres": segment.PostgreSQL, "postgresql": segment.PostgreSQL,
}

func parseSQL(text string) (*url.URL, segment.Dialect, error) {
	const want = "such as mysql://user:password@host:3306/database or postgres://user:password@host:5432/database; what is not a letter or a digit is percent-encoded in user and password"
	target, err := url.Parse(text)
	if err != nil {
		return nil, "", errors.New("not a URL " + want) // its own text would quote the password
	}
	dialect, known := sqlSchemes[target.Scheme]
	switch {
	case !known || target.Opaque != "":
		return nil, "", errors.New("not the URL of a database " + want)
	case target.Hostname() == "":
		return nil, "", errors.New("the URL names no host: " + want)
	case strings.Trim(target.Path, "/") == "" || strings.Contains(target.Path[1:], "/"):
		return nil, "", errors.New("the URL names no database: " + want)
	}
	return target, dialect, nil
}

func openMySQL(target *url.URL) (*sql.DB, error) {
	config, err := mysql.ParseDSN("/?" + target.RawQuery)
	if err != nil {
		return nil, errors.New("the driver does not take one of the parameters behind the question mark")
	}
	port := target.Port()
	if port == "" {
		port = "3306"
	}
	config.Net, config.Addr, config.DBName = "tcp", net.JoinHostPort(target.Hostname(), port), target.Path[1:]
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
	config, err := pgx.ParseConfig(target.String())
	if err != nil {
		return nil, errors.New("the driver does not take the URL: look at what is behind the question mark")
	}
	return stdlib.OpenDB(*config), nil
}

// redactSQL is a database's URL without its password, and without the values of its parameters.
func redactSQL(text string) string {
	target, _, err := parseSQL(text)
	if err != nil {
		if text == "" {
			return ""
		}
		return "***"
	}
	shown := target.Scheme + "://"
	if target.User != nil {
		shown += target.User.Username()
		if _, secret := target.User.Password(); secret {
			shown += ":***"
		}
		shown += "@"
	}
	shown += target.Host + target.Path
	if target.RawQuery != "" { // there may be one there
		shown += "?***"
	}
	return shown
}

// passingSQL is what a database answers that may answer otherwise later: it starts or stops, has no
// room, is a replica, or had another change the same.
var passingSQL = struct {
	numbers []uint16 // of MySQL and MariaDB
	classes []string // of SQLSTATE, in PostgreSQL
}{
	numbers: []uint16{1040, 1053, 1203, 1205, 1213, 1226, 1290, 1792, 1836},
	classes: []string{"08", "25", "40", "53", "55", "57"},
}

// answeredSQL reports whether a database has refused a statement for good, and whether it was for
// lack of a table.
func answeredSQL(err error) (refused, noTable bool) {
	if fault, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return !slices.Contains(passingSQL.numbers, fault.Number), fault.Number == 1146
	}
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && len(fault.Code) == 5 {
		return !slices.Contains(passingSQL.classes, fault.Code[:2]), fault.Code == "42P01"
	}
	return false, false
}

// databaseURL is a setting that names a database.
func databaseURL(name, help string, into *string) *setting {
	return &setting{name: name, unit: "URL", help: help, redact: redactSQL, parse: func(s string) error {
		*into = s
		if s == unsaid {
			return nil
		}
		_, _, err := parseSQL(s)
		return err
	}}
}

// databaseURLs is a setting that names several. A dash stands for one that is gone.
func databaseURLs(name, help string, into *[]string) *setting {
	redact := func(list string) string {
		var shown []string
		for text := range strings.SplitSeq(list, ",") {
			if text != gone {
				text = redactSQL(text)
			}
			shown = append(shown, text)
		}
		return strings.Join(shown, ",")
	}
	return &setting{name: name, unit: "URL,…", help: help, redact: redact, parse: func(s string) error {
		*into = nil
		if s == unsaid {
			return nil
		}
		for i, text := range strings.Split(s, ",") {
			if _, _, err := parseSQL(text); err != nil && text != gone {
				return fmt.Errorf("number %d: %w", i+1, err)
			}
			*into = append(*into, text)
		}
		return nil
	}}
}

// gone stands for a store that is gone for good.
const gone = "-"
