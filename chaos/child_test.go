package chaos

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// child is a process that a test has started. It ends with the test, or with the test binary, however that happens.
type child struct {
	url    string // where it answers
	stderr tail
	cmd    *exec.Cmd
	ended  chan struct{}
	killed atomic.Bool // by the test: requests to it may go without an answer
}

// launch starts a process and waits for its first line on standard output, which urlOf turns into its address.
func launch(t testing.TB, urlOf func(line []byte) string, env []string, binary string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if c.url = urlOf(line); err != nil || c.url == "" {
		c.kill()
		t.Fatalf("%s %v does not come up: %q, %v\n%s", binary, args, line, err, c.stderr.String())
	}
	return c
}

// start starts the process and waits for it on one thread: a child that is to die with its parent dies with the thread that started it.
func (c *child) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // it was killed
			close(c.ended)
		}
	}()
	return <-started
}

// kill ends the process at once, stopped or not, as kill -9 does.
func (c *child) kill() {
	c.killed.Store(true)
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
}

// stop freezes the process: its connections stay, and nothing is answered until it goes on.
func (c *child) stop()   { _ = c.cmd.Process.Signal(syscall.SIGSTOP) } // it may have ended
func (c *child) resume() { _ = c.cmd.Process.Signal(syscall.SIGCONT) }

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailBytes = 64 << 10

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > tailBytes {
		l.text.Next(l.text.Len() / 2)
	}
	return l.text.Write(p)
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until check returns "", and fails the test with what it says if that takes too long.
func await(t testing.TB, limit time.Duration, check func() (complaint string)) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, complaint)
		}
		select {
		case <-t.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
