package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// asCommand as its first argument makes the test binary behave as a command that `worker run` runs.
const asCommand = "as-command"

var _ = becomeCommand()

// becomeCommand is called before any test is, and ends the process if it was started as a command.
func becomeCommand() bool {
	if len(os.Args) > 3 && os.Args[1] == asCommand {
		if err := beat(os.Args[2], os.Args[3:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Exit(0)
	}
	return false
}

// beat writes to a file, as often as it can, the time by the server's clock (the same for all
// processes on one machine) and the end of the window as it was told. Words add to that: deaf
// ignores SIGTERM, fork starts a process that does the same and waits until it does.
func beat(path string, words ...string) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pid %d\n", os.Getpid())
	end := os.Getenv("WORKER_NOT_AFTER_MS")
	for _, word := range words {
		switch word {
		case "deaf":
			signal.Ignore(syscall.SIGTERM)
		case "fork":
			child := exec.Command(os.Args[0], asCommand, path+".forked", "deaf")
			if err := child.Start(); err != nil {
				return err
			}
			for text := []byte(nil); bytes.Count(text, []byte("\n")) <= enoughBeats; time.Sleep(2 * time.Millisecond) {
				text, _ = os.ReadFile(path + ".forked") // it may not be there yet
			}
		}
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(2 * time.Millisecond) {
		if text, err := os.ReadFile(os.Getenv("WORKER_NOT_AFTER_FILE")); err == nil {
			end, _, _ = strings.Cut(string(text), "\n")
		}
		fmt.Fprintf(out, "%d %s\n", time.Now().UnixMilli(), end)
	}
	return nil
}

// enoughBeats tell that a process did run.
const enoughBeats = 10

// beats is what one process has written.
type beats struct {
	pid  int
	all  int // beats
	ends int // different ends of the window
	last int64
	late []string // beats at or after the end
}

func readBeats(t testing.TB, path string) beats {
	t.Helper()
	var b beats
	text, err := os.ReadFile(path)
	if err != nil {
		return b
	}
	last := ""
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 2 || !strings.HasSuffix(line, "\n") {
			continue // it is being written
		}
		if words[0] == "pid" {
			b.pid, _ = strconv.Atoi(words[1])
			continue
		}
		now, err1 := strconv.ParseInt(words[0], 10, 64)
		end, err2 := strconv.ParseInt(words[1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: got the line %q, want two numbers", path, line)
		}
		if now >= end {
			b.late = append(b.late, line)
		}
		if words[1] != last {
			b.ends++
		}
		last, b.last = words[1], now
		b.all++
	}
	return b
}

// goneProcess reports whether a process has ended; a zombie has.
func goneProcess(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// running is a `worker run` of a process that beats, as a process of its own.
type running struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *logtest.Text
	stdout *logtest.Text
	path   string // of the beats
	ended  chan struct{}
}

// start starts the program as a process of its own.
func start(t testing.TB, args ...string) *running {
	t.Helper()
	return startCommand(t, exec.Command(built(t), args...))
}

// startCommand starts the program by a command of its own.
func startCommand(t testing.TB, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd, stderr: &logtest.Text{}, stdout: &logtest.Text{}, ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), asProgram+"=1")
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.cmd.WaitDelay = 10 * time.Second
	expect.NoError(t, "start the program", r.cmd.Start())
	go func() {
		_ = r.cmd.Wait() // the exit code says it
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // most have ended
		<-r.ended
	})
	return r
}

// code waits for the exit code.
func (r *running) code() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("it runs on: %s", r.stderr)
	}
	return r.cmd.ProcessState.ExitCode()
}

func ringOf(t *testing.T, at []string, pool string) api.WorkerRing {
	t.Helper()
	code, stdout, stderr := coatcheck(t, nil, append([]string{"worker", "ls", "--json", pool}, at...)...)
	var ring api.WorkerRing
	if err := json.Unmarshal([]byte(stdout), &ring); code != done || err != nil {
		t.Fatalf("worker ls --json %s: got exit code %d, %s and %s, want JSON", pool, code, stdout, stderr)
	}
	return ring
}
