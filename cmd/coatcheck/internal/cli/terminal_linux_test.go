package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// atTerminal starts a script of a shell with job control at a terminal of its own. In the script,
// "$@" is the program with arguments of lock run up to the command.
type atTerminal struct {
	t      *testing.T
	keys   *os.File     // what is written is typed
	screen logtest.Text // what was printed and typed
}

func startAtTerminal(t *testing.T, script string, lockRun ...string) *atTerminal {
	t.Helper()
	at := &atTerminal{t: t}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	expect.MustEqual(t, "error of opening a terminal", err, nil)
	at.keys = master
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	expect.MustEqual(t, "error of the terminal's number", err, nil)
	expect.MustEqual(t, "error of unlocking the terminal", unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0), nil)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	expect.MustEqual(t, "error of opening the terminal's other end", err, nil)
	shell := exec.Command("sh", slices.Concat([]string{"-c", "set -m; " + script, "sh", built(t), "lock", "run", "--ttl", "1h"}, lockRun)...)
	shell.Env = append(os.Environ(), asProgram+"=1")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	expect.MustEqual(t, "error of starting the shell", shell.Start(), nil)
	_ = slave.Close() // the shell has it
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&at.screen, master) // until all that have the terminal have ended
	}()
	t.Cleanup(func() {
		_ = shell.Process.Kill() // most have ended; the terminal hangs up, which ends the others
		_ = shell.Wait()
		<-read
		_ = master.Close()
	})
	return at
}

// shows waits until a text is on the screen.
func (at *atTerminal) shows(text string) {
	at.t.Helper()
	expect.Eventually(at.t, "the terminal shows "+text, func() bool { return strings.Contains(at.screen.String(), text) })
}

func (at *atTerminal) press(keys string) {
	at.t.Helper()
	_, err := io.WriteString(at.keys, keys)
	expect.MustEqual(at.t, "error of pressing keys", err, nil)
}

// A pager beside lock run in a pipeline reads the keys: the command does not ask for them.
func TestPagerBesideLockRunReadsTheTerminal(t *testing.T) {
	t.Parallel()
	proceed := filepath.Join(t.TempDir(), "proceed")
	at := startAtTerminal(t, `"$@" sh -c 'echo ready; while [ ! -e "$0" ]; do sleep 0.02; done; echo end' '`+proceed+`' |
		{ read line; echo "page-$line"; read key </dev/tty; echo "key-$key"; cat; }; echo "over-$?"`,
		"--server", serve(t).banner.URL, "deploy", "--")
	at.shows("page-ready")
	at.press("q\n")
	at.shows("key-q")
	expect.MustEqual(t, "error of letting the command go on", os.WriteFile(proceed, nil, 0o600), nil)
	at.shows("over-0")
}

// A command that reads from the terminal has it until its end, and the shell after that. Ctrl-Z
// does nothing.
func TestCommandOfLockRunReadsTheTerminal(t *testing.T) {
	t.Parallel()
	proceed := filepath.Join(t.TempDir(), "proceed")
	at := startAtTerminal(t, `"$@" sh -c 'echo ready; while [ ! -e "$0" ]; do sleep 0.02; done; read key; echo "key-$key"; read key; echo "key-$key"' '`+proceed+`'; read key; echo "shell-$key"`,
		"--server", serve(t).banner.URL, "deploy", "--")
	at.shows("ready")
	at.press("\x1a")
	at.shows("^Z")
	expect.MustEqual(t, "error of letting the command go on", os.WriteFile(proceed, nil, 0o600), nil)
	for _, key := range []string{"a", "b"} {
		at.press(key + "\n")
		at.shows("key-" + key)
	}
	at.press("c\n")
	at.shows("shell-c")
}

// A wait for a lock says so on the terminal, and the line is gone when the command begins.
func TestLockRunSaysOnTheTerminalThatItWaits(t *testing.T) {
	t.Parallel()
	service := serve(t)
	var grant struct{ Lease string }
	service.do("POST", "/lock/deploy", `{"ttl_ms":3600000}`).into(t, &grant)
	at := startAtTerminal(t, `"$@" echo begun`, "--server", service.banner.URL, "--wait", "10m", "deploy", "--")
	at.shows("coatcheck lock run: waiting for ")
	service.do("DELETE", "/lock/deploy", "", "Lease-Token: "+grant.Lease)
	at.shows("\r\x1b[2Kbegun")
}
