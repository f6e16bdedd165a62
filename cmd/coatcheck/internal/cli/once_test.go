package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// runOnce starts once with flags and a shell script, in a process of its own.
func runOnce(t *testing.T, at, flags []string, key, script string) *running {
	t.Helper()
	return start(t, slices.Concat([]string{"once"}, at, flags, []string{key, "--", "sh", "-c", script})...)
}

// onceKey is one key, and how often its command ran.
type onceKey struct {
	t    *testing.T
	at   []string
	key  string
	runs string // a file with a line for each run
}

func newOnceKey(t *testing.T, at []string, key string) *onceKey {
	t.Helper()
	return &onceKey{t, at, key, filepath.Join(t.TempDir(), "runs")}
}

// once runs a script that counts itself first.
func (k *onceKey) once(script string, flags ...string) result {
	k.t.Helper()
	return execute(k.t, nil, slices.Concat([]string{"once"}, k.at, flags, []string{k.key, "--", "sh", "-c", "echo run >>" + k.runs + "; " + script})...)
}

func (k *onceKey) ran(want int) {
	k.t.Helper()
	text, _ := os.ReadFile(k.runs)
	expect.Equal(k.t, "runs of "+k.key, strings.Count(string(text), "run\n"), want)
}

// settled waits until the key is in doubt, checks that nothing runs, and does what is printed.
func (k *onceKey) settled(how string) {
	k.t.Helper()
	var shown result
	expect.Eventually(k.t, k.key+" is in doubt", func() bool {
		shown = k.once("true")
		return shown.code == failed
	})
	shown.exits(failed, "is in doubt", "Nothing was run")
	_, after, found := strings.Cut(shown.stderr, "coatcheck token settle ")
	expect.MustEqual(k.t, "whether the command that settles is printed", found, true)
	operation, _, _ := strings.Cut(after, " ")
	execute(k.t, nil, slices.Concat([]string{"token", "settle"}, k.at, []string{operation, how})...).exits(done)
}

func TestOnceRunsACommandOnceForAKey(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "nightly")
		k.once(`test "$ONCE_KEY $ONCE_ATTEMPT" = "nightly 1" && test "$ONCE_FENCE" -gt 0`, "--keep", "1h").exits(done)
		k.once("true").exits(done, "nightly ran before", "exit code 0")
		k.once("true", "--scope", "other").exits(done)
		k.ran(2)
		var record struct {
			Key      string `json:"key"`
			ExitCode int    `json:"exit_code"`
			Attempt  int    `json:"attempt"`
		}
		k.once("true", "--json").exits(done).into(&record)
		expect.Equal(t, "once --json of what ran before", record, struct {
			Key      string `json:"key"`
			ExitCode int    `json:"exit_code"`
			Attempt  int    `json:"attempt"`
		}{"nightly", 0, 1})
	})
}

// A retention of seconds is over after seconds, and a repeat does not renew it.
func TestOnceRunsAgainAfterAShortRetention(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "often")
		for run := range 3 {
			expect.Eventually(t, fmt.Sprintf("%s runs for the time %d", k.key, run+1), func() bool {
				return !strings.Contains(k.once("true", "--keep", "2s").exits(done).stderr, "ran before")
			})
			k.ran(run + 1)
		}
	})
}

func TestACommandThatFailsRunsAgainOrIsKept(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "retried")
		k.once("exit 3").exits(3)
		k.once("exit 2").exits(2)
		k.once("true").exits(done)
		k.once("true").exits(done, "ran before")
		k.ran(3)
		kept := newOnceKey(t, at, "kept")
		kept.once("exit 4", "--on-failure", "keep").exits(4)
		kept.once("true").exits(4, "ran before", "exit code 4")
		kept.ran(1)
		missing := newOnceKey(t, at, "missing")
		execute(t, nil, slices.Concat([]string{"once"}, at, []string{"missing", "--", "/no/such/program"})...).exits(usage, "no such file")
		missing.once("true").exits(done)
		missing.ran(1)
	})
}

func TestACommandThatWasKilledIsInDoubtUntilItIsSettled(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "killed")
		k.once("kill -9 $$", "--lease", "1s").exits(failed, "killed by signal 9", "--not-begun")
		k.settled("--not-begun")
		k.once("test $ONCE_ATTEMPT = 2").exits(done)
		k.ran(2)
		happened := newOnceKey(t, at, "happened")
		happened.once("kill -9 $$", "--lease", "1s").exits(failed)
		happened.settled("--completed")
		happened.once("true").exits(done, "ran before")
		happened.ran(1)
	})
}

// coatcheck itself dies: what it has started dies with it, and nothing runs again.
func TestOnceThatIsKilledLeavesItsKeyInDoubt(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "crashed")
		p := runOnce(t, at, []string{"--lease", "5s"}, k.key, "echo run >>"+k.runs+"; echo ready; sleep 600; echo late >>"+k.runs)
		p.ready()
		k.once("true").exits(tryLater, "runs elsewhere")
		_ = p.cmd.Process.Kill()
		k.settled("--completed")
		k.ran(1)
	})
}

// Three nodes with clocks that differ start the same job of a moment, some while it runs.
func TestThreeNodesRunAJobOnce(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		for round := range 5 {
			k := newOnceKey(t, at, fmt.Sprint("job:", round))
			var nodes sync.WaitGroup
			codes := make([]int, 6)
			for i := range codes {
				nodes.Go(func() { codes[i] = k.once("sleep 0.005", "--wait", "1m").code })
			}
			nodes.Wait()
			expect.Equal(t, "exit codes of all", codes, make([]int, 6))
			k.ran(1)
		}
	})
}

// connected waits until the program asks a service or a Redis, so that it takes signals.
func (r *running) connected() {
	r.t.Helper()
	expect.Eventually(r.t, "coatcheck "+strings.Join(r.cmd.Args[1:], " ")+" has a connection", func() bool {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
		return slices.ContainsFunc(open, func(file string) bool {
			what, _ := os.Readlink(file)
			return strings.HasPrefix(what, "socket:")
		})
	})
}

// While it runs, signals are the command's; before that, they end the wait.
func TestSignalsOfOnceAreTheCommands(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "signalled")
		p := runOnce(t, at, nil, k.key, `trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
		p.ready()
		waiting := runOnce(t, at, []string{"--wait", "1h"}, k.key, "true")
		waiting.connected()
		_ = waiting.cmd.Process.Signal(syscall.SIGTERM)
		waiting.exits(tryLater)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		p.exits(done)
		k.once("true").exits(done, "ran before")
		k.ran(0)
	})
}

// A signal before the claim is sent ends the wait like a later signal: nothing was run. If the
// command ran, its own error stays.
func TestSignalBeforeTheClaimOfOnceIsNoFailure(t *testing.T) {
	t.Parallel()
	ended := fmt.Errorf("claim operation: %w: %w", client.ErrRefused, context.Canceled)
	for ran, later := range map[bool]bool{false: true, true: false} {
		_, is := errors.AsType[laterError]((&once{}).explain(ended, ran))
		expect.Equal(t, fmt.Sprintf("whether it is to be tried later if the command ran: %v", ran), is, later)
	}
}

// Redis loses the record while the command runs: another one could begin now.
func TestOnceStopsACommandWhoseRecordIsLost(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	at := []string{"--redis", redis.URL()}
	p := runOnce(t, at, []string{"--lease", "1s"}, "lost", "echo ready; sleep 600")
	p.ready()
	expect.NoError(t, "FLUSHALL", redis.Client().FlushAll(t.Context()).Err())
	p.exits(failed, "record of lost was lost", "the next call runs it again")
	expect.Equal(t, "whether what has no record is called in doubt", strings.Contains(p.stderr.String(), "in doubt"), false)
}

// Redis is away from before the end of the command until after once has given up.
func TestACommandWhoseEndIsNotRecordedHasFailed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	killed := filepath.Join(t.TempDir(), "killed")
	p := runOnce(t, []string{"--redis", redis.URL()}, []string{"--lease", "1s"}, "unrecorded", "echo ready; until test -e "+killed+"; do sleep 0.05; done")
	p.ready()
	redis.Kill()
	expect.NoError(t, "write the file", os.WriteFile(killed, nil, 0o600))
	p.exits(failed, "ran and ended with exit code 0, but that could not be recorded", "token settle")
}

// No signal has the number 127: a program may end with 255 by itself, as ssh does.
func TestAnExitCodeAbove128IsInDoubtWithoutAGuess(t *testing.T) {
	t.Parallel()
	at := []string{"--redis", redistest.Start(t).URL()}
	for code, says := range map[string]string{"255": "ended with exit code 255", "137": "killed by signal 9"} {
		k := newOnceKey(t, at, "code-"+code)
		shown := k.once("exit "+code, "--lease", "1s").exits(failed, says, "in doubt", "--not-begun")
		expect.Equal(t, "whether a signal 127 is named", strings.Contains(shown.stderr, "signal 127"), false)
		k.ran(1)
	}
}

// A command that outlives its lease, while Redis cannot be reached, goes on: under hold no other
// begins. Its end is recorded late.
func TestOnceGoesOnWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	at := []string{"--redis", redis.URL()}
	p := runOnce(t, at, []string{"--lease", "1s"}, "away", "echo ready; sleep 3")
	p.ready()
	redis.Pause()
	time.Sleep(2 * time.Second)
	redis.Resume()
	p.exits(done)
	execute(t, nil, slices.Concat([]string{"once"}, at, []string{"away", "--", "true"})...).exits(done, "ran before")
}

func TestWhatOnceRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"once", "k"}, usage, "one key and, after two dashes, a command"},
		{[]string{"once", "{yyyy", "--", "true"}, usage, "brace is not closed"},
		{[]string{"once", "k:{nonsense}", "--", "true"}, usage, "position"},
		{[]string{"once", "{{}}", "--", "true"}, usage, "braces in KEY hold a date, once, as in nightly:{yyyyMMdd}"},
		{[]string{"once", "import/{yyyyMMdd}", "--", "true"}, usage, "around it are A–Z a–z 0–9"},
		{[]string{"once", "--zone", "Europe/Berlin", "k", "--", "true"}, usage, "no date in KEY"},
		{[]string{"once", "--zone", "Nowhere", "k:{yyyy}", "--", "true"}, usage, "not a time zone"},
		{[]string{"once", "--keep", "1ms", "k", "--", "true"}, usage, "keep"},
		{[]string{"once", "--lease", "1ms", "k", "--", "true"}, usage, "lease"},
		{[]string{"once", "--on-failure", "ignore", "k", "--", "true"}, usage, "retry"},
		{[]string{"once", "--redis", "redis://127.0.0.1:1", "k", "--", "true"}, tryLater, "connection refused"},
	} {
		execute(t, nil, row.args...).exits(row.code, row.says)
	}
}

func TestTheDateOfAKeyIsThatOfItsZone(t *testing.T) {
	now := time.Date(2026, 11, 28, 23, 30, 0, 0, time.UTC)
	for _, row := range []struct{ text, zone, want string }{
		{"nightly", "", "nightly"},
		{"nightly:{yyyyMMdd}", "", "nightly:20261128"},
		{"nightly:{yyyyMMdd}", "Europe/Berlin", "nightly:20261129"},
		{"close:{yyyy-MM}", "", "close:2026-11"},
		{"evt_1/ä b", "", "evt_1/ä b"},
	} {
		key, err := keyNow(row.text, row.zone, now)
		expect.MustEqual(t, "error of "+row.text, err, nil)
		expect.Equal(t, row.text+" in "+row.zone, key, row.want)
	}
}

// A key that another client has completed is done as well.
func TestOnceTakesTheRecordOfAnotherClient(t *testing.T) {
	t.Parallel()
	p := serve(t)
	var claimed api.Claimed
	text := p.do("POST", "/operation/claim", `{"key":"shared","fingerprint":"once"}`).body
	if err := json.Unmarshal(text, &claimed); err != nil || claimed.Outcome != "granted" {
		t.Fatalf("claiming the key: %q, %v", text, err)
	}
	p.answers(204, "POST", "/operation/"+claimed.Operation+"/complete", `{"status":200,"headers":{},"body_base64":""}`, "Lease-Token: "+claimed.Lease)
	execute(t, nil, "once", "--server", p.banner.URL, "shared", "--", "false").exits(done, "ran before, as another client or an operator has recorded\n")
	shown := execute(t, nil, "once", "--json", "--server", p.banner.URL, "shared", "--", "false").exits(done)
	expect.Equal(t, "its record", shown.stdout, `{"key":"shared","exit_code":0}`+"\n")
}

// A command finds out whether CMD had its effect before it was killed. If the command does not
// know, CMD does not run again.
func TestOnceHasACommandFindOut(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		for says, want := range map[string]struct {
			code, runs int
			text       string
		}{
			"exit 0":  {done, 1, "ran before"},
			"exit 10": {done, 2, ""},
			"exit 1":  {failed, 1, "is in doubt"},
			`test "$ONCE_FENCE" -gt 0 && test ${#ONCE_OPERATION} = 32 && test "$ONCE_KEY" = "` + "fence" + `"`: {done, 1, "ran before"},
		} {
			name := strings.ReplaceAll(says, " ", "-")
			if strings.HasPrefix(says, "test") {
				name = "fence"
			}
			k := newOnceKey(t, at, name)
			k.once("kill -9 $$", "--lease", "1s").exits(failed, "in doubt")
			var shown result
			expect.Eventually(t, "the lease of "+name+" lapses", func() bool {
				shown = k.once("true", "--resolve", says)
				return !strings.Contains(shown.stderr, "runs elsewhere")
			})
			shown.exits(want.code, want.text)
			k.ran(want.runs)
		}
	})
}
