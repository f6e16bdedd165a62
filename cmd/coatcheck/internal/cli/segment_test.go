package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/segment"
)

func TestDatabaseURLs(t *testing.T) {
	for _, row := range []struct {
		url, shown string
		dialect    segment.Dialect // "" = refused
	}{
		{"mysql://u:hunter2@h:1/db", "mysql://u:***@h:1/db", segment.DialectMySQL},
		{"mariadb://u:hunter2@h/db?tls=true", "mariadb://u:***@h/db?***", segment.DialectMySQL},
		{"mysql://h/db", "mysql://h/db", segment.DialectMySQL},
		{"mysql://u:hunter2@[::1]:1/db", "mysql://u:***@[::1]:1/db", segment.DialectMySQL},
		{"postgres://u:hunter2@h:1/db?sslmode=disable", "postgres://u:***@h:1/db?***", segment.DialectPostgreSQL},
		{"postgresql://u:hunter%402@h/db", "postgresql://u:***@h/db", segment.DialectPostgreSQL},
		{"postgres://h/db?password=hunter2", "postgres://h/db?***", segment.DialectPostgreSQL},

		{"", "", ""},
		{"mysql://u:hunter2@h/db?interpolateParams=hunter2", "mysql://u:***@h/db?***", ""},
		{"postgres://u:hunter2@h/db?sslmode=hunter2", "postgres://u:***@h/db?***", ""},
		{"mysql://u:hunter2@h", "***", ""},
		{"mysql://u:hunter2@h/", "***", ""},
		{"mysql://u:hunter2@h/a/b", "***", ""},
		{"mysql://u:hunter2@/db", "***", ""},
		{"mysql://u:hunter2@h:port/db", "***", ""},
		{"mysql://u:hunter2%@h/db", "***", ""},
		{"mysql:hunter2", "***", ""},
		{"redis://:hunter2@h/0", "***", ""},
		{"hunter2", "***", ""},
		{"u:hunter2@tcp(h:1)/db", "***", ""},
	} {
		db, dialect, err := openSQL(row.url)
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		if dialect != row.dialect || (err == nil) != (row.dialect != "") {
			t.Errorf("%s: got dialect %q and error %v, want dialect %q, and an error if that is none", row.url, dialect, err, row.dialect)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error says %v", row.url, err)
		}
		if shown := config.RedactSQL(row.url); shown != row.shown {
			t.Errorf("%s is shown as %s, not as %s", row.url, shown, row.shown)
		}
	}
}
