//go:build check

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
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
		expect.Error(t, "close of the rival's locks", c.locks.Close(), nil)
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

// toldBeforeFree checks that neither the command nor what it has started did anything once the
// rival had the lock.
func (c *rival) toldBeforeFree(r *running) {
	c.t.Helper()
	var held *lock.Lock
	select {
	case held = <-c.got:
	case <-time.After(2 * time.Minute): // a hang
	}
	if held == nil {
		c.t.Fatal("the rival does not get the lock")
	}
	for _, path := range []string{r.path, r.path + ".forked"} {
		name := filepath.Base(path)
		expect.Eventually(c.t, name+" is there, and its process has ended", func() bool {
			b := readBeats(c.t, path)
			return b.pid != 0 && goneProcess(b.pid)
		})
		b := readBeats(c.t, path)
		if b.all < enoughBeats {
			c.t.Errorf("%s: got %d beats, want %d at least", name, b.all, enoughBeats)
		}
		if b.last >= held.Since().UnixMilli() {
			c.t.Errorf("%s: the last of %d beats came %v after another had the lock", name, b.all, time.UnixMilli(b.last).Sub(held.Since()))
		}
	}
	expect.Error(c.t, "release of the rival's lock", held.Release(context.Background()), nil)
}

// Each row is a way of losing what keeps the lock. The command, and what it has started, deaf to
// SIGTERM, must be gone before another can have the lock.
func TestCommandNeverRunsBesideTheNextHolder(t *testing.T) {
	service := func(t *testing.T, redis *redistest.Server) *process {
		t.Helper()
		return serveProcess(t, "--redis", redis.URL())
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
			return []string{"--server", p.banner.URL}, func() { p.signal(syscall.SIGSTOP) }, nil
		}},
		{"service in a black hole", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			link := redistest.StartProxy(t, strings.TrimPrefix(service(t, redis).banner.URL, "http://"), nil)
			return []string{"--server", "http://" + link.Addr()}, link.Swallow, nil
		}},
		{"service's redis in a black hole", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			link := redistest.StartProxy(t, redis.Addr(), nil)
			p := serve(t, "--redis", "redis://"+link.Addr())
			return []string{"--server", p.banner.URL}, link.Swallow, nil
		}},
		{"redis in a black hole", func(t *testing.T, redis *redistest.Server) ([]string, func(), func()) {
			link := redistest.StartProxy(t, redis.Addr(), nil)
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
			r.exits(tryLater, "was lost", "start the command again")
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
		p := serveProcess(t, "--redis", redis.URL())
		r := lockRunBeating(t, []string{"--server", p.banner.URL}, "deaf", "fork")
		r.renewed()
		c.wait()
		return r, p, func() { c.toldBeforeFree(r) }
	})
}
