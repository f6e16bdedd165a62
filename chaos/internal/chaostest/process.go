package chaostest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// Process is a process that a test has started. Its methods may be called by several goroutines;
// what they do to one that has ended is nothing.
type Process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// BuildIn builds the program of a folder, which may be a module of its own, or a package that is
// known there.
func BuildIn(t testing.TB, folder string, pkg ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	buildIn(t, folder, binary, pkg...)
	return binary
}

func buildIn(t testing.TB, folder, binary string, pkg ...string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-C", folder, "-o", binary}, pkg...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// Start starts a command.
func Start(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	dieWithParent(command)
	p := &Process{command: command, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// a child that is to die with its parent dies with the thread that started it
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended, Code tells
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %v: %v", command.Args, err)
	}
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

// Pid is the process's id.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Code waits for the end and tells the exit code, -1 if a signal made the end.
func (p *Process) Code() int {
	<-p.ended
	return p.command.ProcessState.ExitCode()
}

// Kill ends the process at once, stopped or not, as kill -9 does.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// Finish asks the process to end in order, and waits until it has.
func (p *Process) Finish() {
	p.signal(syscall.SIGTERM)
	<-p.ended
}

// Stop freezes the process, and returns when all of it stands still. The signal alone is not
// enough: until it has come to each thread, one of them may hear what happens next, and answer it.
// What the process has sent before may still be on its way: who asks the receiver something gets an
// answer after that.
func (p *Process) Stop() {
	p.signal(syscall.SIGSTOP)
	awaitStopped(p.command.Process.Pid)
}

// Resume lets a process that was stopped go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) } // it may have ended

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
