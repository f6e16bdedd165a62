//go:build check

package locks

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// nameVariable names the lock to a process that runs a command under it.
const nameVariable = "CHAOS_NAME"

// tryLater is the exit code of a command that was stopped since its lock was lost.
const tryLater = 75

// The link of a `coatcheck lock run` to Redis is cut, whenever and however: its command, which is
// deaf to SIGTERM, is dead before the next one holds.
func TestCommandIsDeadBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	binary, server := chaostest.Coatcheck(t), redistest.Start(t)
	near, err := openFenced(t.Context(), redisstore.Config{URL: server.URL()}, window)
	expect.NoError(t, "opening the locks", err)
	run := func(url, name string) *exec.Cmd {
		return exec.Command(binary, "lock", "run", "--redis", url, "--ttl", longer.String(), name, "--", os.Args[0])
	}
	cutMany(t, *trials, commandsAtOnce, near, func(i int, found *trialResults) error {
		// half of what is between the kill and the end
		return cutCommand(t, server, i, near, run, longer/20, found)
	}).never(t)
}

// The same with SETNX, a TTL and renewals, where the command is killed when a renewal has failed:
// it is found alive.
func TestCommandUnderANaiveLockIsFoundAlive(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openNaive(server.URL())
	expect.NoError(t, "opening naive locks", err)
	run := func(url, name string) *exec.Cmd {
		command := exec.Command(os.Args[0])
		command.Env = []string{chaostest.RoleVariable + "=naive run", chaostest.StoreVariable + "=" + url, nameVariable + "=" + name}
		return command
	}
	cutMany(t, 3, commandsAtOnce, near, func(i int, found *trialResults) error {
		return cutCommand(t, server, i, near, run, time.Hour, found)
	}).sometimes(t)
}

// cutCommand cuts the link of a process that runs a command under a lock: nothing comes through any
// more, or no answer, or its connections end and there are no new ones. It tells nothing about a
// machine that stands still for longer than excused: a paused process is too late.
func cutCommand(t *testing.T, server *redistest.Server, i int, near locker, run func(url, name string) *exec.Cmd, excused time.Duration, found *trialResults) error {
	link := redistest.StartProxy(t, server.Addr(), nil)
	w := wish{Name: fmt.Sprintf("command-%d", i), TTL: longer, Wait: time.Minute}
	c := startCommand(t, func() *exec.Cmd { return run("redis://"+link.Addr(), w.Name) })
	pulse := startPulse()
	line := await(t.Context(), near, w)
	time.Sleep(rand.N(longer)) // some renewals come through
	[]func(){link.Swallow, link.SwallowAnswers, link.Close}[i%3]()
	heir := <-line
	alive := lives(c.pid)
	stood := pulse.stop()
	if heir.err != nil {
		return fmt.Errorf("the next one: %w", heir.err)
	}
	code := c.Code() // it ends when the command has
	_, last := life(c.file)
	if alive {
		last = max(last, heir.got)
	}
	if lives(c.pid) {
		t.Errorf("process %d outlives who ran it", c.pid)
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
	}
	if err := heir.release(context.WithoutCancel(t.Context()), near); err != nil {
		return err
	}
	if last > heir.since() && stood > excused {
		return fmt.Errorf("%w: %v", errStood, stood)
	}
	found.add(last, last, heir.since())
	if code != tryLater {
		t.Errorf("exit code %d: %s", code, c.said)
	}
	return nil
}

// command is one that runs under a lock, by a process that started it.
type command struct {
	*chaostest.Process

	said *chaostest.Tail
	file string // in which it says that it lives
	pid  int
}

// startCommand returns when the command lives. Who has lost the lock before that, on a machine that
// stood still, is started again.
func startCommand(t *testing.T, run func() *exec.Cmd) *command {
	t.Helper()
	c := &command{file: filepath.Join(t.TempDir(), "life")}
	start := func() {
		_ = os.Remove(c.file) // the first time there is none
		c.said = &chaostest.Tail{}
		cmd := run()
		cmd.Env = append(append(os.Environ(), chaostest.RoleVariable+"=command", chaostest.FileVariable+"="+c.file), cmd.Env...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.said, c.said, time.Minute
		c.Process = chaostest.Start(t, cmd)
	}
	start()
	chaostest.Await(t, 3*time.Minute, func() string {
		select {
		case <-c.Done():
			t.Logf("once more, since it ended with %d: %s", c.Code(), c.said)
			start()
		default:
		}
		if c.pid, _ = life(c.file); c.pid == 0 {
			return "the command does not live: " + c.said.String()
		}
		return ""
	})
	return c
}

// pulse notices for how long a process that has something to do has to wait for this machine, at
// most.
type pulse struct {
	over  chan struct{}
	worst chan time.Duration
}

func startPulse() *pulse {
	p := &pulse{make(chan struct{}), make(chan time.Duration, 1)}
	go func() {
		const beat = 5 * time.Millisecond
		worst := time.Duration(0)
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-p.over:
				p.worst <- worst
				return
			case <-time.After(beat):
				worst = max(worst, time.Since(last)-beat)
			}
		}
	}()
	return p
}

func (p *pulse) stop() time.Duration {
	close(p.over)
	return <-p.worst
}

// since is when it got the lock, by Redis if that tells: on one machine there is one clock. It is a
// moment early at most, to the millisecond.
func (n next) since() int64 {
	if held, ok := n.holding.(*lock.Lock); ok {
		return held.Since().UnixNano()
	}
	return n.got
}

// beat is a command that writes its process id, and again and again that it lives, until it is
// killed.
func beat(name string) error {
	signal.Ignore(syscall.SIGTERM)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	record := make([]byte, 16)
	// a test that was killed leaves nothing for ever
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(2 * time.Millisecond) {
		binary.BigEndian.PutUint64(record, uint64(os.Getpid()))
		binary.BigEndian.PutUint64(record[8:], uint64(now()))
		if _, err := file.WriteAt(record, 0); err != nil {
			return err
		}
	}
	return nil
}

// life reads what a command has written: its process id, and when it was alive last; 0 if it has
// written nothing yet.
func life(file string) (pid int, last int64) {
	record, err := os.ReadFile(file)
	if err != nil || len(record) < 16 {
		return 0, 0
	}
	return int(binary.BigEndian.Uint64(record)), int64(binary.BigEndian.Uint64(record[8:]))
}

// lives reports whether a process has not ended, where the system shows it: a zombie has.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// runNaively runs a command under a naive lock, and kills it when the lock says that it was lost.
func runNaively(ctx context.Context, url string) error {
	locks, err := openNaive(url)
	if err != nil {
		return err
	}
	held, err := locks.Acquire(ctx, wish{Name: os.Getenv(nameVariable)})
	if err != nil {
		return err
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), chaostest.RoleVariable+"=command")
	if err := command.Start(); err != nil {
		return err
	}
	for held.Err() == nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	_ = command.Process.Kill()
	_ = command.Wait() // it was killed
	os.Exit(tryLater)
	return nil
}
