package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/linktest"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// lockRunBeating starts `lock run` with flags, and what its command does besides beating.
func lockRunBeating(t testing.TB, flags []string, words ...string) *running {
	t.Helper()
	path := filepath.Join(t.TempDir(), "beats")
	args := append([]string{"lock", "run", "--wait", "30s", "--ttl", "2s"}, flags...)
	args = append(args, "deploy", "--", "sh", "-c", `export WORKER_NOT_AFTER_FILE="$LOCK_NOT_AFTER_FILE"; exec "$0" "$@"`, os.Args[0], asCommand, path)
	r := start(t, append(append(args, words...), "beat")...)
	r.path = path
	t.Cleanup(func() { // whatever the test has broken
		for _, path := range []string{path, path + ".forked"} {
			if b := readBeats(t, path); b.pid != 0 && !goneProcess(b.pid) {
				t.Errorf("process %d of %s outlived everything", b.pid, path)
				_ = syscall.Kill(b.pid, syscall.SIGKILL)
			}
		}
	})
	return r
}

// rival waits for the lock on Redis itself, over a link that nothing befalls.
type rival struct {
	t     testing.TB
	locks *lock.Locks
	got   chan *lock.Lock
}

func startRival(t testing.TB, redis *redistest.Server) *rival {
	t.Helper()
	c := &rival{t: t, locks: lock.New(storetest.Open(t, redisstore.Config{URL: redis.URL()}), lock.Config{Owner: "rival"}), got: make(chan *lock.Lock, 1)}
	t.Cleanup(func() {
		if err := c.locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// wait has the rival stand in line until it has the lock or the test ends.
func (c *rival) wait() {
	go func() {
		defer close(c.got)
		for c.t.Context().Err() == nil {
			held, err := c.locks.Acquire(c.t.Context(), "deploy", lock.Request{})
			if err == nil {
				c.got <- held
				return
			}
		}
	}()
}

// toldBeforeFree checks that neither the command nor what it has started did anything once the rival had the lock.
func (c *rival) toldBeforeFree(r *running) {
	c.t.Helper()
	var held *lock.Lock
	select {
	case held = <-c.got:
	case <-time.After(30 * time.Second):
	}
	if held == nil {
		c.t.Fatal("the rival does not get the lock")
	}
	for _, path := range []string{r.path, r.path + ".forked"} {
		b := readBeats(c.t, path)
		eventually(c.t, "the command has ended", func() bool { return b.pid != 0 && goneProcess(b.pid) })
		if b = readBeats(c.t, path); b.all < 10 || b.last >= held.Since().UnixMilli() {
			c.t.Errorf("%s: the last of %d beats came %v after another had the lock", filepath.Base(path), b.all, time.UnixMilli(b.last).Sub(held.Since()))
		}
	}
	if err := held.Release(context.Background()); err != nil {
		c.t.Error(err)
	}
}

// Each row is a way of losing what keeps the lock. The command, and what it has started, deaf to SIGTERM, must be gone before another can have the lock.
func TestCommandNeverRunsBesideTheNextHolder(t *testing.T) {
	service := func(t *testing.T, redis *redistest.Server) *process {
		t.Helper()
		return serve(t, "--redis", redis.URL())
	}
	for _, row := range []struct {
		name  string
		begin func(t *testing.T, redis *redistest.Server) (flags []string, fault, mend func())
	}{
		{"service killed", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			p := service(t, redis)
			return []string{"--server", p.banner.URL}, p.kill, nil
		}},
		{"service stopped", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			p := service(t, redis)
			return []string{"--server", p.banner.URL}, func() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }, nil
		}},
		{"service in a black hole", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			link := linktest.Start(t, strings.TrimPrefix(service(t, redis).banner.URL, "http://"))
			return []string{"--server", "http://" + link.Addr()}, link.Swallow, nil
		}},
		{"service's redis in a black hole", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			link := linktest.Start(t, redis.Addr())
			p := serve(t, "--redis", "redis://"+link.Addr())
			return []string{"--server", p.banner.URL}, link.Swallow, nil
		}},
		{"redis in a black hole", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			link := linktest.Start(t, redis.Addr())
			return []string{"--redis", "redis://" + link.Addr()}, link.Swallow, nil
		}},
		{"redis stopped", func(_ *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			return []string{"--redis", redis.URL()}, redis.Pause, redis.Resume
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			redis := redistest.Start(t)
			c := startRival(t, redis)
			flags, fault, mend := row.begin(t, redis)
			r := lockRunBeating(t, flags, "deaf", "fork")
			r.renewed()
			c.wait()
			fault()
			if code := r.code(); code != tryLater || !strings.Contains(r.stderr.String(), "was lost") || !strings.Contains(r.stderr.String(), "start the command again") {
				t.Errorf("%d %s", code, r.stderr)
			}
			if mend != nil {
				mend()
			}
			c.toldBeforeFree(r)
			r.inTime(r.path + ".forked")
		})
	}
}

func TestCommandUnderALockNeverOutlivesThoseWhoWatchIt(t *testing.T) {
	eachWatcherFault(t, func(t *testing.T) (*running, *process, func()) {
		redis := redistest.Start(t)
		c := startRival(t, redis)
		p := serve(t, "--redis", redis.URL())
		r := lockRunBeating(t, []string{"--server", p.banner.URL}, "deaf", "fork")
		r.renewed()
		c.wait()
		return r, p, func() { c.toldBeforeFree(r) }
	})
}

// A lock that was broken is another's at once, so its holder's command has no time left to end by itself, however long its grace.
func TestCommandIsKilledWhenItsLockIsBroken(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		r := runLocked(t, at, []string{"--ttl", "3s"}, `trap 'echo asked to end' TERM; echo ready; while :; do sleep 0.05; done`)
		r.ready()
		if code, _, stderr := coatcheck(t, nil, append([]string{"lock", "break", "deploy", "--yes"}, at...)...); code != done {
			t.Fatalf("%d %s", code, stderr)
		}
		if code := r.code(); code != tryLater || !strings.Contains(r.stderr.String(), "Somebody broke it") || strings.Contains(r.stdout.String(), "asked") {
			t.Errorf("%d %s %s", code, r.stdout, r.stderr)
		}
	})
}

// Who kills the command is not always faster than the guard, which sees its child end and may still report that. Each row is what the guard reports then.
func TestVerdictOnACommandThatWasKilled(t *testing.T) {
	for _, row := range []struct {
		report report
		killed bool
		code   int
	}{
		{report{Ended: true, Code: 128 + 9}, true, tryLater},
		{report{Ended: true, Code: 128 + 9, Cut: true}, false, tryLater},
		{report{}, true, tryLater},
		{report{Ended: true, Code: 128 + 9}, false, 128 + 9}, // by somebody else
		{report{Ended: true, Code: 3}, true, 3},              // just before
	} {
		s := &supervision{tenure: lostTenure{}, outcome: row.report, killed: row.killed, cause: lock.ErrLost}
		err, code := s.verdict(), tryLater
		if ended, own := errors.AsType[exitError](err); own {
			code = ended.code
		}
		if code != row.code || code == tryLater && !errors.As(err, &laterError{}) {
			t.Errorf("%+v, killed %v: %d %v, want %d", row.report, row.killed, code, err, row.code)
		}
	}
}

// lostTenure is a lease that was lost.
type lostTenure struct{ tenure }

func (lostTenure) lost(cause error) error { return cause }
