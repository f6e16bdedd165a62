package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestStartedServerAnswers(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if pong, err := s.Client().Ping(t.Context()).Result(); err != nil || pong != "PONG" {
		t.Fatalf("PING: %q, %v", pong, err)
	}
	if s.URL() != "redis://"+s.Addr() || !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Errorf("URL %q, Addr %q", s.URL(), s.Addr())
	}
	options, err := redis.ParseURL(s.URL())
	if err != nil || options.Addr != s.Addr() {
		t.Errorf("URL %q is read as %+v, %v", s.URL(), options, err)
	}
}

func TestServersKeepNothingOnDiskUnlessArgsSaySo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args           []string
		save, appendTo string
	}{
		"default": {nil, "", "no"},
		"args":    {[]string{"--appendonly", "yes", "--save", "60 1"}, "60 1", "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, tc.args...)
			for option, want := range map[string]string{"save": tc.save, "appendonly": tc.appendTo} {
				got, err := s.Client().ConfigGet(t.Context(), option).Result()
				if err != nil || got[option] != want {
					t.Errorf("CONFIG GET %s = %v, %v; want %q", option, got, err, want)
				}
			}
		})
	}
}

func TestServerThatAsksForAPasswordStarts(t *testing.T) {
	t.Parallel()
	s := Start(t, "--requirepass", `let me "in"`)
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING with the password: %v", err)
	}
	s.Restart()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING with the password after a restart: %v", err)
	}
}

func TestStoppedOrKilledServerRefusesConnections(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Server){"stop": (*Server).Stop, "kill": (*Server).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			pid := s.Pid()
			end(s)
			if err := s.Client().Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("PING: %v, want connection refused", err)
			}
			if !gone(pid) || s.Pid() != 0 {
				t.Errorf("process %d is still there, or Pid is not 0 but %d", pid, s.Pid())
			}
			end(s) // does nothing
		})
	}
}

func TestStopShutsDownInOrderEvenWhenPaused(t *testing.T) {
	t.Parallel()
	s := Start(t, "--save", "3600 1000000") // saves at shutdown, and hardly before
	expect.NoError(t, "SET of k", s.Client().Set(t.Context(), "k", "v", 0).Err())
	s.Pause()
	s.Stop()
	s.Restart()
	if got, err := s.Client().Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("after Stop and Restart: %q, %v", got, err)
	}
}

func TestKilledServerComesBackWithWhatItHadOnDisk(t *testing.T) {
	t.Parallel()
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	expect.NoError(t, "SET of k", s.Client().Set(t.Context(), "k", "v", 0).Err())
	addr, pid := s.Addr(), s.Pid()
	s.Kill()
	s.Restart()
	if got, err := s.Client().Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("after Kill and Restart: %q, %v", got, err)
	}
	if s.Addr() != addr || s.Pid() == pid || s.Pid() == 0 {
		t.Errorf("address %s, process %d; were %s, %d", s.Addr(), s.Pid(), addr, pid)
	}
}

func TestRestartEmptyLosesData(t *testing.T) {
	t.Parallel()
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	expect.NoError(t, "SET of k", s.Client().Set(t.Context(), "k", "v", 0).Err())
	pid := s.Pid()
	s.RestartEmpty() // without Kill: the server is running
	if n, err := s.Client().DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("after RestartEmpty: %d keys, %v", n, err)
	}
	if !gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if got, err := s.Client().ConfigGet(t.Context(), "appendonly").Result(); got["appendonly"] != "yes" || err != nil {
		t.Errorf("after RestartEmpty the server has forgotten its arguments: %v, %v", got, err)
	}
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	t.Parallel()
	s := Start(t)
	expect.NoError(t, "PING", s.Client().Ping(t.Context()).Err())
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Client().Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
		t.Errorf("PING while paused: %v, want a timeout", err)
	}
	if s.Pid() == 0 {
		t.Error("a paused server counts as not running")
	}
	s.Resume()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Resume: %v", err)
	}
	s.Resume() // does nothing
}

func TestServersEndWithTheirTest(t *testing.T) {
	t.Parallel()
	var servers []*Server
	var pids []int
	t.Run("uses them", func(t *testing.T) {
		servers = []*Server{Start(t), Start(t), Start(t)}
		for _, s := range servers {
			pids = append(pids, s.Pid())
		}
		servers[1].Pause()
		servers[2].Kill()
	})
	for i, pid := range pids {
		if !gone(pid) {
			t.Errorf("server %d: process %d has outlived its test", i, pid)
		}
	}
	if err := servers[0].Client().Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("its client is still open: %v", err)
	}
}

func TestClusterAndSentinelsEndWithTheirTest(t *testing.T) {
	t.Parallel()
	var servers []*Server
	var pids []int
	t.Run("uses them", func(t *testing.T) {
		set := StartSentinel(t, 0)
		servers = append(servers, set.Master())
		for _, s := range set.sentinels {
			servers = append(servers, s.Server)
		}
		servers = append(servers, StartCluster(t, 3, 0).Nodes()...)
		for _, s := range servers {
			pids = append(pids, s.Pid())
		}
	})
	if len(pids) != 1+3+3 {
		t.Errorf("%d processes", len(pids))
	}
	for i, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d of %s has outlived its test", pid, servers[i].Addr())
		}
	}
}

func TestMethodsMayBeCalledConcurrently(t *testing.T) {
	t.Parallel()
	s := Start(t)
	var calls sync.WaitGroup
	for _, call := range []func(){s.Kill, s.Restart, s.RestartEmpty, s.Resume, s.Stop, func() { s.Pid() }} {
		calls.Go(call)
	}
	calls.Wait()
	s.Restart()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after the restart: %v", err)
	}
}

func TestMissingServerFailsAndSaysHowToInstallIt(t *testing.T) {
	t.Setenv("REDIS_SERVER", "/does/not/exist")
	failure := failureOf(t, func(t testing.TB) { Start(t) })
	for _, want := range []string{"/does/not/exist", "apt-get install -y redis-server", "make deps"} {
		if !strings.Contains(failure, want) {
			t.Errorf("the failure does not name %q: %s", want, failure)
		}
	}
}

func TestServerThatCannotStartFailsWithItsLog(t *testing.T) {
	t.Parallel()
	failure := failureOf(t, func(t testing.TB) { Start(t, "--no-such-option", "yes") })
	if !strings.Contains(failure, "Bad directive or wrong number of arguments") {
		t.Errorf("the failure lacks what the server said: %s", failure)
	}
}

func TestFailedTestShowsTheServersLog(t *testing.T) {
	t.Parallel()
	outer := &fakeTB{TB: t, failed: true}
	s := Start(outer)
	outer.runCleanups()
	if !strings.Contains(outer.log, s.Addr()) || !strings.Contains(outer.log, "Ready to accept connections") {
		t.Errorf("the log of the failed test: %q", outer.log)
	}
}

func TestTakenPortIsToldFromOtherFailures(t *testing.T) {
	t.Parallel()
	taken := Start(t)
	s := &Server{t: t, binary: taken.binary, dir: t.TempDir(), port: taken.port}
	if err := errors.Join(os.Mkdir(s.dataDir(), 0o755), os.WriteFile(s.configFile(), []byte(s.config()), 0o644)); err != nil {
		t.Fatalf("the server's folder is made: %v", err)
	}
	s.mu.Lock()
	err := s.launchLocked()
	s.mu.Unlock()
	if !errors.Is(err, errPortTaken) {
		t.Errorf("launch on the port of another server: %v", err)
	}
	if err := taken.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("the other server: %v", err)
	}
}

// gone reports whether there is no process pid any more, not even one whose exit waits to be
// collected.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// fakeTB is a test that may fail without failing the real one.
type fakeTB struct {
	testing.TB
	failed   bool
	failure  string
	log      string
	cleanups []func()
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed, f.failure = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fakeTB) Failed() bool                    { return f.failed }
func (f *fakeTB) Logf(format string, args ...any) { f.log += fmt.Sprintf(format, args...) }
func (f *fakeTB) Cleanup(cleanup func())          { f.cleanups = append(f.cleanups, cleanup) }

func (f *fakeTB) runCleanups() {
	for _, cleanup := range slices.Backward(f.cleanups) {
		cleanup()
	}
}

// failureOf returns what run says when it ends its test with Fatalf.
func failureOf(t *testing.T, run func(testing.TB)) string {
	t.Helper()
	fake := &fakeTB{TB: t}
	var done sync.WaitGroup
	done.Go(func() { run(fake) })
	done.Wait()
	fake.runCleanups()
	if !fake.failed {
		t.Fatal("it did not fail")
	}
	return fake.failure
}
