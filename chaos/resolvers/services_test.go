//go:build check && linux

package resolvers

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// workers are those of each service.
const workers = 3

// kind is a way to write a service, and where that keeps its payments.
type kind struct {
	name    string
	store   sqltest.Kind // "" = SQLite
	dialect dialect
	command []string // a program of testdata/services; nil = Go, by this test binary
}

// kinds are all of them. Debian's packages are for Debian's interpreters.
var kinds = []kind{
	{"gunicorn, PostgreSQL", sqltest.PostgreSQL, dialect{"PostgreSQL", formatted}, []string{
		"/usr/bin/gunicorn", "--worker-class", "gthread", "--workers", "3", "--threads", "4", "--keep-alive", "60",
		"--bind", "127.0.0.1:PORT", "--log-level", "critical", "app:application",
	}},
	{"puma, SQLite", "", dialect{"A table of operations", marked}, []string{
		"puma", "--quiet", "--workers", "3", "--threads", "4:4", "--environment", "production", "--bind", "tcp://127.0.0.1:PORT", "config.ru",
	}},
	{"node, PostgreSQL", sqltest.PostgreSQL, dialect{"PostgreSQL", numbered}, []string{"node", "service.mjs"}},
	goKind,
}

var goKind = kind{"Go, MariaDB", sqltest.MariaDB, dialect{"MySQL", marked}, nil}

// service is a running service, a primary with its workers, that can be broken.
type service struct {
	*database

	kind    kind
	port    int
	folder  string
	process *chaostest.Process
	more    []string // of the environment
}

// startService starts a service with a database of its own.
func startService(t testing.TB, of kind, environment ...string) *service {
	t.Helper()
	port, err := proctest.Reserve()
	expect.NoError(t, "reserving a port", err)
	t.Cleanup(port.Release)
	r := recipeOf(t, of.dialect)
	s := &service{database: newDatabase(t, of.store, r.table, paymentsTable), kind: of, port: port.Number()}
	s.more = slices.Concat(environment, []string{
		"RECIPE=" + r.file(t), "LIMIT_MS=" + strconv.FormatInt(limit.Milliseconds(), 10), "PORT=" + strconv.Itoa(s.port),
		"PYTHONDONTWRITEBYTECODE=1", "HOME=" + t.TempDir(),
	})
	if of.command != nil {
		s.folder = proctest.Packages(t, filepath.Join("testdata", "services"))
	}
	s.start()
	t.Cleanup(func() { s.kill() })
	return s
}

// hurried is a client that asks again.
var hurried = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (s *service) address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// start starts the service, and waits until it answers.
func (s *service) start() {
	words := []string{os.Args[0]}
	if s.kind.command != nil {
		words = nil
		for _, word := range s.kind.command {
			words = append(words, strings.ReplaceAll(word, "PORT", strconv.Itoa(s.port)))
		}
	}
	chaostest.Await(s.t, time.Minute, func() string {
		if s.process == nil || !s.process.Running() { // a killed worker may still have had the port
			command := exec.Command(words[0], words[1:]...)
			command.Dir, command.Stderr = s.folder, os.Stderr
			command.Env = append(append(os.Environ(), s.environment...), s.more...)
			command.Env = append(command.Env, chaostest.RoleVariable+"="+primaryRole)
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			s.process = chaostest.Start(s.t, command)
		}
		response, err := hurried.Get("http://" + s.address() + "/")
		if err != nil {
			return s.kind.name + " does not answer: " + err.Error()
		}
		_ = response.Body.Close() // it is not read
		return ""
	})
}

// kill ends the service with all of its processes, as if at once.
func (s *service) kill() {
	if s.process.Running() { // so its id is that of a group of ours
		_ = syscall.Kill(-s.process.Pid(), syscall.SIGKILL)
	}
	<-s.process.Done()
}

// signal signals one of the workers, by lot. The primary stands still meanwhile, so that it
// collects no worker, whose id could be another's then.
func (s *service) signal(lot func(n int) int, signal syscall.Signal) (pid int) {
	chaostest.Await(s.t, time.Minute, func() string {
		s.process.Stop()
		defer s.process.Resume()
		some := proctest.Children(s.process.Pid())
		if len(some) == 0 {
			return "there is no worker"
		}
		pid = some[lot(len(some))]
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err.Error()
		}
		return ""
	})
	return pid
}

// wake lets a stopped worker go on, if it is still one.
func (s *service) wake(pid int) {
	s.process.Stop()
	defer s.process.Resume()
	for _, one := range proctest.Children(s.process.Pid()) {
		if one == pid {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended, and is not collected
		}
	}
}
