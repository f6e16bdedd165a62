//go:build check

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: got error %v", statement, err)
	}
}

func count(ctx context.Context, db *sql.DB) (n int, err error) {
	return n, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM kept").Scan(&n)
}

func TestServerKeepsItsPortAndWhatItConfirmedThroughAKill(t *testing.T) {
	Each(t, func(t *testing.T, server *Server) {
		db := server.Open(t)
		put(t, db, "CREATE TABLE kept (id INT PRIMARY KEY)")
		put(t, db, "INSERT INTO kept VALUES (1)")
		addr := server.Addr()
		server.Kill()
		if _, err := count(t.Context(), db); err == nil {
			t.Error("a server that was killed answers")
		}
		if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr); err == nil {
			conn.Close()
			t.Error("a process listens on its port")
		}
		server.Kill() // does nothing
		server.Restart(t)
		// The pool may have connections to the server that was.
		var n int
		var err error
		for range 3 {
			if n, err = count(t.Context(), db); err == nil {
				break
			}
		}
		if n != 1 || err != nil || server.Addr() != addr {
			t.Errorf("it has %d rows at %s, %v; want 1 at %s", n, server.Addr(), err, addr)
		}
	})
}

func TestDatabasesAreApart(t *testing.T) {
	Each(t, func(t *testing.T, server *Server) {
		one, two := server.Open(t), server.OpenPlain(t, server.Addr(), server.Database(t))
		put(t, one, "CREATE TABLE kept (id INT PRIMARY KEY)")
		put(t, two, "CREATE TABLE kept (id INT PRIMARY KEY)")
		put(t, one, "INSERT INTO kept VALUES (1)")
		if n, err := count(t.Context(), two); n != 0 || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

// A MariaDB that starts takes all temporary tables in its directory for leavings of its own and
// removes them: two of them in /tmp make each other fail.
func TestServerLeavesTheTemporaryTablesOfOthersAlone(t *testing.T) {
	// where a server has them that is told nothing else
	others, err := os.CreateTemp("/tmp", "#sql-temptable-*.MAI")
	expect.NoError(t, "a file of another server", err)
	t.Cleanup(func() { _ = os.Remove(others.Name()) })
	expect.NoError(t, "the other server's file is closed", others.Close())
	Start(t, MariaDB)
	if _, err := os.Stat(others.Name()); err != nil {
		t.Errorf("what another server has: %v", err)
	}
}

func TestServerLeavesNothingBehind(t *testing.T) {
	for _, kind := range []Kind{MariaDB, PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			var server *Server
			t.Run("lifetime", func(t *testing.T) { server = Start(t, kind) })
			if _, err := os.Stat(server.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder %s after the server's end: got error %v, want %v", server.dir, err, os.ErrNotExist)
			}
			if server.process.Signal(syscall.Signal(0)) {
				t.Errorf("process %d is still there", server.process.Pid())
			}
		})
	}
}

// A test binary that is killed runs no cleanup.
func TestServerEndsWithATestBinaryThatIsKilled(t *testing.T) {
	const child = "COATCHECK_TEST_SQL_CHILD"
	if kind := os.Getenv(child); kind != "" {
		server := Start(t, Kind(kind))
		os.Stdout.WriteString("\nserver " + strconv.Itoa(server.process.Pid()) + " " + server.dir + "\n")
		select {}
	}
	name := t.Name()
	for _, kind := range []Kind{MariaDB, PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			binary := exec.Command(os.Args[0], "-test.run=^"+name+"$")
			binary.Env = append(os.Environ(), child+"="+string(kind))
			out, err := binary.StdoutPipe()
			expect.NoError(t, "a pipe for the child's output", err)
			expect.NoError(t, "the child is started", binary.Start())
			pid, dir := serverIn(t, out)
			defer os.RemoveAll(dir)
			expect.NoError(t, "the child is killed", binary.Process.Kill())
			_ = binary.Wait() // killed
			awaitEnd(pid)
		})
	}
}

func TestMissingProgramNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for find, want := range map[string]func() (engine, error){"mariadb-server-core": findMariaDB} {
		if _, err := want(); err == nil || !strings.Contains(err.Error(), find) {
			t.Errorf("it says %v, want the package %s", err, find)
		}
	}
	if _, err := find("no-such-program", "postgresql", postgresFolders()...); err == nil || !strings.Contains(err.Error(), "Debian packages postgresql") {
		t.Errorf("it says %v", err)
	}
}
