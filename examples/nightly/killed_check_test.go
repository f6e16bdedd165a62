//go:build check

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// kills is in how many nights something is killed: go test -tags=check -run Killed -kills 100.
var kills = flag.Int("kills", 10, "in how many nights a node or its job is killed")

// fleet is three nodes with one Redis and one bank.
type fleet struct {
	t         *testing.T
	coatcheck string // the program
	redis     *redistest.Server
	folder    string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: redistest.Start(t), folder: t.TempDir()}
	f.coatcheck = f.folder + "/coatcheck"
	if out, err := exec.Command("go", "build", "-o", f.coatcheck, "../../cmd/coatcheck").CombinedOutput(); err != nil {
		t.Fatalf("building coatcheck: %v\n%s", err, out)
	}
	return f
}

// node is what a node's crontab has started.
type node struct {
	*proctest.Process

	stderr *logtest.Text
	job    string // a file with the job's process id, once there is one
}

// start starts the crontab's line of one node.
func (f *fleet) start(night string) node {
	f.t.Helper()
	n := node{stderr: &logtest.Text{}, job: fmt.Sprintf("%s/job-%d", f.folder, rand.Int64())}
	cmd := exec.Command(f.coatcheck, "once", "--on-failure", "keep", "--lease", "1s", night, "--redis", f.redis.URL(),
		"--", os.Args[0], "--bank", f.redis.URL())
	cmd.Env = append(os.Environ(), asJob+"=1", pidFile+"="+n.job)
	cmd.Stderr = n.stderr
	process, err := proctest.Start(cmd, syscall.SIGKILL)
	expect.NoError(f.t, "the start of the job", err)
	n.Process = process
	f.t.Cleanup(process.Kill)
	return n
}

// code waits for the end of a node's line.
func (n node) code() int {
	if err, ok := n.Err().(*exec.ExitError); ok { //nolint:errorlint // it is what Wait returns
		return err.ExitCode()
	}
	return 0
}

// kill kills coatcheck or its job at a random moment.
func (n node) kill() (what string) {
	if rand.IntN(2) == 0 {
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		n.Signal(syscall.SIGKILL)
		return "coatcheck"
	}
	for n.Running() {
		var pid int
		text, _ := os.ReadFile(n.job)
		if _, err := fmt.Sscan(string(text), &pid); err == nil {
			time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond)
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			return "the job"
		}
		time.Sleep(time.Millisecond)
	}
	return "nothing"
}

// printedKey and printedCommand are in what coatcheck prints of a night in doubt.
var (
	printedKey     = regexp.MustCompile(`(?m)(\S+) is in doubt`)
	printedCommand = regexp.MustCompile(`coatcheck (operation settle .*) --completed`)
)

// settle does what coatcheck has printed, as the README says: it asks the bank, and settles.
func (f *fleet) settle(stderr string) (happened bool) {
	f.t.Helper()
	key, command := printedKey.FindStringSubmatch(stderr), printedCommand.FindStringSubmatch(stderr)
	if key == nil || command == nil {
		f.t.Fatalf("no command that settles in what was printed:\n%s", stderr)
	}
	var said logtest.Text
	looked := run(f.t.Context(), []string{"--bank", f.redis.URL(), "--look", key[1]}, os.Getenv, &said, &said)
	how := map[int]string{0: "--completed", 1: "--not-begun"}[looked]
	args := append(strings.Fields(command[1]), how)
	if out, err := exec.Command(f.coatcheck, args...).CombinedOutput(); err != nil {
		f.t.Fatalf("coatcheck %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return looked == 0
}

// finish starts a node's line until one says that the night is done, and settles doubt.
func (f *fleet) finish(night string) (happened, not int) {
	f.t.Helper()
	expect.Eventually(f.t, night+" is done", func() bool {
		n := f.start(night)
		switch n.code() {
		case 0:
			return true
		case 1:
			if f.settle(n.stderr.String()) {
				happened++
			} else {
				not++
			}
		case 75: // it runs elsewhere, or the lease of one that was killed has not lapsed
			time.Sleep(200 * time.Millisecond)
		default:
			f.t.Fatalf("%s ended with %d:\n%s", night, n.code(), n.stderr)
		}
		return false
	})
	return happened, not
}

// statements is how often the bank has got the statement of a night.
func (f *fleet) statements(night string) int {
	f.t.Helper()
	list, err := f.redis.Client().LRange(f.t.Context(), statements, 0, -1).Result()
	expect.NoError(f.t, "LRANGE of the statements", err)
	times := 0
	for _, one := range list {
		if strings.HasPrefix(one, strings.TrimSuffix(night, "{yyyy}")) {
			times++
		}
	}
	return times
}

// The first node, or its job, is killed at a random moment of each night, while the second starts;
// the third comes last. No statement is sent twice, and after the settlement each was sent.
func TestKilledNodesSendNoStatementTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	killed, happened, not := map[string]int{}, 0, 0
	for i := range *kills {
		night := fmt.Sprintf("nightly-%d:{yyyy}", i)
		first := f.start(night)
		victim := make(chan string)
		go func() { victim <- first.kill() }()
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		second := f.start(night)
		killed[<-victim]++
		<-first.Done()
		<-second.Done()
		h, n := f.finish(night)
		happened, not = happened+h, not+n
		expect.Equal(t, "statements of "+night, f.statements(night), 1)
	}
	t.Logf("%d nights, killed %v; %d in doubt: %d had been sent, %d had not", *kills, killed, happened+not, happened, not)
}

// Without a kill: the crons of three nodes, one of them late by more than the job takes.
func TestThreeNodesSendOneStatement(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const night = "nightly:{yyyy}"
	first, second := f.start(night), f.start(night)
	codes := map[int]bool{first.code(): true, second.code(): true}
	expect.Equal(t, "whether one of two nodes ended with 0", codes[0], true)
	late := f.start(night)
	expect.Equal(t, "exit code of the third", late.code(), 0)
	expect.Contains(t, "what it printed", late.stderr.String(), "ran before")
	expect.Equal(t, "statements", f.statements(night), 1)
}
