package sqltest

import (
	"cmp"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that most have

	"github.com/coatcheck/coatcheck/internal/postgres"
)

func findPostgreSQL() (engine, error) {
	folders := postgresFolders()
	initdb, err := find("initdb", "postgresql", folders...)
	if err != nil {
		return engine{}, err
	}
	serve, err := find("postgres", "postgresql", folders...)
	if err != nil {
		return engine{}, err
	}
	as, err := ordinaryUser()
	if err != nil {
		return engine{}, err
	}
	return engine{
		scheme:   "postgres",
		database: "postgres",
		install: func(s *Server) []string {
			return []string{
				initdb, "--pgdata=" + s.path("data"), "--no-sync", "--no-locale", "--encoding=UTF8", "--auth=scram-sha-256",
				"--username=" + User, "--pwfile=" + s.path("password"),
			}
		},
		run: func(s *Server) []string {
			return []string{
				serve, "-D", s.path("data"), "-k", s.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port.Number()),
				"-c", "shared_buffers=16MB", "-c", "max_wal_size=64MB",
				// a commit is handed to the system, which outlives a kill, and not waited for until
				// it is on the disk
				"-c", "fsync=off",
			}
		},
		files: map[string]string{"password": Password},
		end:   syscall.SIGQUIT, // an immediate shutdown, which gives its shared memory back
		as:    as,
		open:  openPostgreSQL,
	}, nil
}

// postgresFolders is where Debian has the programs of each version, the newest first.
func postgresFolders() []string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is right
	version := func(folder string) int {
		number, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		return number
	}
	slices.SortFunc(folders, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	return folders
}

// ordinaryUser is as whom the server runs: it refuses to as root.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // no other than who runs the test
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w; the Debian package postgresql makes it (or `make deps`)", err)
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func openPostgreSQL(address, database string, plain bool) (*sql.DB, error) {
	target := url.URL{Scheme: "postgres", User: url.UserPassword(User, Password), Host: address, Path: "/" + database,
		RawQuery: "sslmode=disable"}
	if plain {
		return postgres.Open(target.String())
	}
	return sql.Open("pgx", target.String())
}

// find returns the path of a program, from PATH or a folder. Its error says how to install it.
func find(name, packages string, folders ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, folder := range folders {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no server to test with: %w; install the Debian packages %s (or run `make deps`)", err,
		strings.TrimSpace(packages))
}
