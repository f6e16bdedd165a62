//go:build check

package segments

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// redisServer is a Redis that has each command on its disk before it answers.
type redisServer struct{ *redistest.Server }

func startRedis(t *testing.T) redisServer {
	t.Helper()
	return redisServer{redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
}

func (r redisServer) restart(testing.TB) { r.Restart() }

// sqlServer is a database server that has each commit on its disk before it answers.
type sqlServer struct{ *sqltest.Server }

func startSQL(t *testing.T, kind sqltest.Kind) sqlServer {
	t.Helper()
	s := sqlServer{sqltest.Start(t, kind)}
	s.harden(t)
	return s
}

func (s sqlServer) restart(t testing.TB) {
	t.Helper()
	s.Restart(t)
	s.harden(t)
}

// harden turns on what sqltest turns off, since there no machine crashes.
func (s sqlServer) harden(t testing.TB) {
	t.Helper()
	statements := map[sqltest.Kind][]string{
		sqltest.MariaDB:    {"SET GLOBAL innodb_flush_log_at_trx_commit = 1"},
		sqltest.PostgreSQL: {"ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"},
	}[s.Kind()]
	db := s.Open(t)
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: got error %v", statement, err)
		}
	}
}

// database makes a new database with the tables of a role.
func (s sqlServer) database(t testing.TB, role string) database {
	t.Helper()
	name := s.Database(t)
	one := database{s.OpenDatabase(t, name), s.Kind(), s.Addr(), name}
	seeded(t, role, one)
	return one
}
