package chaostest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// Process is a process that a test has started. Its methods may be called by several goroutines;
// what they do to one that has ended is nothing.
type Process struct{ *proctest.Process }

// BuildIn builds the program of a folder, which may be a module of its own, with more arguments for
// go build.
func BuildIn(t testing.TB, folder string, args ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	buildIn(t, folder, binary, args...)
	return binary
}

func buildIn(t testing.TB, folder, binary string, args ...string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-C", folder, "-o", binary}, args...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// Start starts a command.
func Start(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	started, err := proctest.Start(command, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("starting %v: %v", command.Args, err)
	}
	p := &Process{started}
	t.Cleanup(p.Kill)
	return p
}

// StartRole starts this test binary as a process that plays a role, see [Main]. Its environment is
// that of the test and what is given here.
func StartRole(t testing.TB, role string, environment ...string) *Process {
	t.Helper()
	return startSelf(t, os.Args[0], nil, append(environment, RoleVariable+"="+role)...)
}

// startSelf starts a program that says on the test's own standard error what is wrong.
func startSelf(t testing.TB, program string, args []string, environment ...string) *Process {
	t.Helper()
	command := exec.CommandContext(context.Background(), program, args...)
	command.Env = append(os.Environ(), environment...)
	command.Stderr = os.Stderr
	return Start(t, command)
}

// Code waits for the end and tells the exit code, -1 if a signal made the end.
func (p *Process) Code() int {
	if exit, is := errors.AsType[*exec.ExitError](p.Err()); is {
		return exit.ExitCode()
	}
	return 0
}

// Finish asks the process to end in order, and waits until it has.
func (p *Process) Finish() {
	p.Signal(syscall.SIGTERM)
	<-p.Done()
}

// Stop freezes the process, and returns when all of it stands still. The signal alone is not
// enough: until it has come to each thread, one of them may hear what happens next, and answer it.
// What the process has sent before may still be on its way: who asks the receiver something gets an
// answer after that.
func (p *Process) Stop() {
	p.Signal(syscall.SIGSTOP)
	awaitStopped(p.Pid())
}

// Resume lets a process that was stopped go on.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }

// Size is that of a file that a process writes; 0 if it is not there yet.
func Size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Tail keeps the end of what a process says. The zero value is ready for use, also by several
// goroutines.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 64 << 10

// Write implements io.Writer.
func (l *Tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*tailBytes {
		l.text = append([]byte(nil), l.text[len(l.text)-tailBytes:]...)
	}
	return len(p), nil
}

// String is the end of what was said.
func (l *Tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text[max(0, len(l.text)-tailBytes):])
}
