package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// What every server has. The password holds what a URL or a data source name may stumble over.
const (
	User     = "coatcheck"
	Password = "se:cr@t/?#'%41"
)

const (
	startLimit = 30 * time.Second
	pollEvery  = 10 * time.Millisecond
)

// Kind is a kind of server.
type Kind string

// The kinds that there are.
const (
	MariaDB    Kind = "mariadb"
	PostgreSQL Kind = "postgresql"
)

// engine is what differs between the kinds.
type engine struct {
	scheme   string // of a URL
	database string // that there is from the start
	// install and run are the command lines that make the data directory and serve it.
	install, run func(s *Server) []string
	files        map[string]string   // that they read, by name
	end          syscall.Signal      // what ends it in a hurry, but leaves nothing behind
	as           *syscall.Credential // nil = who runs the test
	open         func(address, database string, plain bool) (*sql.DB, error)
}

// Server is one private server process, from Start or Launch. Several goroutines may use it.
type Server struct {
	kind   Kind
	engine engine
	dir    string
	port   *proctest.Port
	count  atomic.Int32 // of databases

	mu      sync.Mutex
	process *proctest.Process // the latest; nil before the first start
}

// Each runs a test on a server of each kind.
func Each(t *testing.T, test func(t *testing.T, server *Server)) {
	t.Helper()
	for _, kind := range []Kind{MariaDB, PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) { test(t, Start(t, kind)) })
	}
}

// Start runs a private server and ends it with the test. A failed test shows the end of its log.
func Start(t testing.TB, kind Kind) *Server {
	t.Helper()
	s, err := Launch(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sqltest: %s\n%s", kind, proctest.LogTail(s.path("log")))
		}
		if err := s.End(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Launch runs a private server for several tests. The caller ends it.
func Launch(kind Kind) (*Server, error) {
	s := &Server{kind: kind}
	if err := s.start(); err != nil {
		tail := proctest.LogTail(s.path("log"))
		return nil, errors.Join(fmt.Errorf("sqltest: %s: %w\n%s", kind, err, tail), s.End())
	}
	return s, nil
}

func (s *Server) start() (err error) {
	find := map[Kind]func() (engine, error){MariaDB: findMariaDB, PostgreSQL: findPostgreSQL}[s.kind]
	if find == nil {
		return errors.New("there is no such kind of server")
	}
	if s.engine, err = find(); err != nil {
		return err
	}
	if s.port, err = proctest.Reserve(); err != nil {
		return err
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	for name, text := range s.engine.files {
		if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil { // for another user
			return err
		}
	}
	if out, err := s.command(s.engine.install(s)).CombinedOutput(); err != nil {
		return fmt.Errorf("make its data directory: %w\n%s", err, out)
	}
	return s.launch()
}

// makeDir makes the server's directory. It is not the test's own: into that no user but its owner
// can look, and its name may be too long for a socket.
func (s *Server) makeDir() (err error) {
	if s.dir, err = os.MkdirTemp("", "coatcheck-sql-"); err != nil {
		return err
	}
	if s.engine.as == nil {
		return nil
	}
	return os.Chown(s.dir, int(s.engine.as.Uid), int(s.engine.as.Gid))
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// command is a program that runs in the server's directory, as the server's user, with nothing of
// the machine's settings for clients. Its temporary files are there too: a MariaDB that starts
// removes those of every other in the same directory.
func (s *Server) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...) // a server's program, which ends with the test
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + s.dir, "TMPDIR=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.engine.as}
	return cmd
}

// launch starts the process and returns when it answers. What a server that was killed has left may
// have to go first, so one that ends at once is started again.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		if err := s.spawn(); err != nil {
			return err
		}
		err := s.awaitAnswer(ctx)
		if err == nil {
			return nil
		}
		s.process.End(s.engine.end)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * pollEvery):
		}
	}
}

func (s *Server) spawn() (err error) {
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command(s.engine.run(s))
	cmd.Stdout, cmd.Stderr = log, log
	s.process, err = proctest.Start(cmd, s.engine.end)
	return err
}

// awaitAnswer returns nil once the process answers, or says why it will not.
func (s *Server) awaitAnswer(ctx context.Context) error {
	db, err := s.engine.open(s.Addr(), s.engine.database, true)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("it has ended: %w", s.process.Err())
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(pollEvery):
		}
	}
}

// Kind tells which kind of server it is.
func (s *Server) Kind() Kind { return s.kind }

// Addr returns the server's address, 127.0.0.1:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port.Number()) }

// URL is a database of the server with user and password: mysql://… or postgres://….
func (s *Server) URL(database string) string {
	return (&url.URL{Scheme: s.engine.scheme, User: url.UserPassword(User, Password), Host: s.Addr(), Path: "/" + database}).String()
}

// Connect returns connections, by drivers' defaults, to a database of another process's server.
func Connect(kind Kind, address, database string) (*sql.DB, error) {
	open := map[Kind]func(address, database string, plain bool) (*sql.DB, error){MariaDB: openMariaDB, PostgreSQL: openPostgreSQL}[kind]
	if open == nil {
		return nil, fmt.Errorf("sqltest: there is no kind of server called %q", kind)
	}
	return open(address, database, false)
}

// Database makes a new database and returns its name.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "test_" + strconv.Itoa(int(s.count.Add(1)))
	db := s.pool(t, s.Addr(), s.engine.database, true)
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("sqltest: make a database: %v\n%s", err, proctest.LogTail(s.path("log")))
	}
	return name
}

// Open returns connections to a new database, by drivers' defaults. The test's end closes them.
func (s *Server) Open(t testing.TB) *sql.DB {
	t.Helper()
	return s.OpenDatabase(t, s.Database(t))
}

// OpenDatabase returns connections to a database, by drivers' defaults. The test's end closes them.
func (s *Server) OpenDatabase(t testing.TB, database string) *sql.DB {
	t.Helper()
	return s.pool(t, s.Addr(), database, false)
}

// OpenPlain returns connections that go through a proxy at an address. Each statement is sent in
// one piece, its arguments in it or after it, so that the proxy can tell it by its words. Those to
// PostgreSQL are by the service's driver. They are closed with the test.
func (s *Server) OpenPlain(t testing.TB, address, database string) *sql.DB {
	t.Helper()
	return s.pool(t, address, database, true)
}

func (s *Server) pool(t testing.TB, address, database string, plain bool) *sql.DB {
	t.Helper()
	db, err := s.engine.open(address, database, plain)
	if err != nil {
		t.Fatalf("sqltest: open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Kill ends the server as a crash would, with SIGKILL for all of its processes, and returns when
// they are gone. Killing one that is not running does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	crash(s.process)
}

// Restart starts a killed server again, with its port and its data, and returns when it answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.launch(); err != nil {
		t.Fatalf("sqltest: Restart: %v\n%s", err, proctest.LogTail(s.path("log")))
	}
}

// End ends the server, and removes all that it has.
func (s *Server) End() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.End(s.engine.end)
	}
	if s.port != nil {
		s.port.Release()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir) // it was made by makeDir
}
