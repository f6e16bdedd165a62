package proctest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// guard runs a command in the background and writes its process id to file 3. It kills the command
// and removes a directory when its own standard input ends.
const guard = `dir=$1; shift
"$@" </dev/null 3>&- &
echo $! >&3
exec 3>&-
read -r _
kill -9 $!
wait
rm -rf "$dir"`

// Tied is a child that lives as long as this process, unless End ends it before. When this process
// ends, however that happens, the child is killed. Only StartTied makes one.
type Tied struct {
	pid   int
	guard *exec.Cmd
	input *os.File // ends when this process does, or in End
}

// StartTied starts a command that lives as long as this process. After the child's end dir and all
// that is in it is removed.
//
// A shell watches over the child, in a session of its own, so that a Ctrl-C does not end it before
// us. No goroutine does, unlike that of [Start], so a test binary that searches for leaked
// goroutines at its end finds none. The price is that an exit of the child goes unnoticed.
func StartTied(cmd *exec.Cmd, dir string) (*Tied, error) {
	watched, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer watched.Close()
	said, says, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	defer said.Close()

	// The guard is a constant text that runs what the test chose, and outlives every context.
	t := &Tied{input: input, guard: exec.Command("/bin/sh", append([]string{"-c", guard, "guard", dir, cmd.Path}, cmd.Args[1:]...)...)}
	t.guard.Dir, t.guard.Env = cmd.Dir, cmd.Env
	t.guard.Stdin, t.guard.Stdout, t.guard.Stderr, t.guard.ExtraFiles = watched, cmd.Stdout, cmd.Stderr, []*os.File{says}
	t.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = t.guard.Start()
	_ = says.Close() // the shell has it
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	text, err := io.ReadAll(said)
	if err == nil {
		t.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		t.End()
		return nil, fmt.Errorf("the process id of %s: %w", cmd.Path, err)
	}
	return t, nil
}

// Pid is the child's process id.
func (t *Tied) Pid() int { return t.pid }

// End kills the child, removes its directory and returns when both are gone. It may be called once.
func (t *Tied) End() {
	_ = t.input.Close()
	_ = t.guard.Wait()
}
