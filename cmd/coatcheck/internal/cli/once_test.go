package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	_, after, found := strings.Cut(shown.stderr, "coatcheck operation settle ")
	expect.MustEqual(k.t, "whether the command that settles is printed", found, true)
	printed, _, _ := strings.Cut(after, " --completed")
	words := strings.Fields(printed)
	expect.MustEqual(k.t, "the flags of the command that settles", words[1:], k.at)
	execute(k.t, nil, slices.Concat([]string{"operation", "settle"}, words, []string{how})...).exits(done)
}

func TestOnceRunsACommandOnceForAKey(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "nightly")
		k.once(`test "$ONCE_KEY $ONCE_ATTEMPT" = "nightly 1" && test "$ONCE_FENCE" -gt 0 && test ${#ONCE_OPERATION} = 32`, "--keep", "1h").exits(done)
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
		execute(t, nil, slices.Concat([]string{"once"}, at, []string{"missing", "--", "/no/such/program"})...).exits(127, "no such file")
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

// A command that was sent a signal and says that it failed may have had its effect before.
func TestCommandOfOnceThatFailsAfterASignalIsInDoubt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		flags []string
		code  int // of the first call
		again int // of the next one, and what it says
		says  string
	}{
		{nil, failed, failed, "in doubt"},
		{[]string{"--on-failure", "keep"}, 3, 3, "ran before"},
	} {
		lockDoors(t, func(t *testing.T, at []string) {
			k := newOnceKey(t, at, "told")
			p := runOnce(t, at, append(row.flags, "--lease", "1s"), k.key, `trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
			p.ready()
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			p.exits(row.code)
			expect.Eventually(t, "the next call says "+row.says, func() bool {
				got := k.once("echo twice")
				return got.code == row.again && strings.Contains(got.stderr, row.says)
			})
			k.ran(0)
		})
	}
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

// A proxy may answer in the service's place, and so in doubt without the operation's name.
func TestDoubtWithoutANameSaysHowToFindIt(t *testing.T) {
	t.Parallel()
	nameless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"status":409,"code":"` + string(api.IdempotencyUnknown) + `"}`))
	}))
	defer nameless.Close()
	k := newOnceKey(t, []string{"--server", nameless.URL}, "nameless")
	shown := k.once("true").exits(failed, "nameless is in doubt", "Nothing was run", "coatcheck operation ls --in-doubt --server "+nameless.URL)
	lacks(t, "advice without a name", shown.stderr, "operation settle")
	k.ran(0)
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
	p.exits(failed, "ran and ended with exit code 0, but that could not be recorded", "operation settle")
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
		{"nightly:{yyyyMMdd}", "UTC", "nightly:20261128"},
		{"nightly:{yyyyMMdd}", "Europe/Berlin", "nightly:20261129"},
		{"close:{yyyy-MM}", "UTC", "close:2026-11"},
		{"quarter:{yyyyMMddHHmm}", "Asia/Kolkata", "quarter:202611290500"},
		{"evt_1/ä b", "", "evt_1/ä b"},
	} {
		key, _, err := keyNow(row.text, row.zone, now)
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

// A file that is no program, or a script whose shell is not there, is not begun. One without a
// first line is a script of sh.
func TestCommandsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		expect.NoError(t, "write the file", os.WriteFile(filepath.Join(folder, name), []byte(text), mode))
		return filepath.Join(folder, name)
	}
	bare := write("bare", "exit $1\n", 0o700)
	lockDoors(t, func(t *testing.T, at []string) {
		for _, row := range []struct {
			command []string
			code    int
		}{
			{[]string{write("strange", "#!/no/such/shell\n", 0o700)}, 126},
			{[]string{write("text", "no program\n", 0o600)}, 126},
			{[]string{filepath.Join(folder, "none")}, 127},
			{[]string{folder}, 126},
			{[]string{"coatcheck-has-no-such-program"}, 127},
			{[]string{bare, "7"}, 7},
			{[]string{bare, "0"}, done}, // none of these has kept the key
		} {
			execute(t, nil, slices.Concat([]string{"once"}, at, []string{"start", "--"}, row.command)...).exits(row.code)
			execute(t, nil, slices.Concat([]string{"lock", "run"}, at, []string{"start", "--"}, row.command)...).exits(row.code)
		}
	})
}

// systemd sends a signal to coatcheck and to the command, unless KillMode is mixed: it is not sent
// on then.
func TestSignalsAreLeftToWhoSendsThem(t *testing.T) {
	t.Parallel()
	p := runOnce(t, []string{"--redis", redistest.Start(t).URL()}, []string{"--signals", "leave", "--on-failure", "keep"}, "told",
		`echo $$ >&2; n=0; trap 'n=$((n+1)); echo told >&2' TERM; trap 'exit $((10+n))' USR1; echo ready; while :; do sleep 0.01; done`)
	p.ready()
	expect.Eventually(t, "the number of the command's process", func() bool { return strings.Contains(p.stderr.String(), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(p.stderr.String()))
	expect.NoError(t, "the number of the command's process", err)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = syscall.Kill(pid, syscall.SIGTERM)
	expect.Eventually(t, "it was told", func() bool { return strings.Contains(p.stderr.String(), "told") })
	_ = syscall.Kill(pid, syscall.SIGUSR1)
	p.exits(11)
}

func TestLosersOfOnceAreQuiet(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		k := newOnceKey(t, at, "quiet")
		p := runOnce(t, at, nil, k.key, "echo ready; while ! test -e "+k.runs+"; do sleep 0.01; done")
		p.ready()
		k.once("true", "--conflict-exit-code", "7").exits(7, "runs elsewhere")
		got := k.once("true", "--quiet", "--conflict-exit-code", "0").exits(done)
		expect.Equal(t, "what it says while the command runs", got.stdout+got.stderr, "")
		expect.NoError(t, "write the file", os.WriteFile(k.runs, nil, 0o600))
		p.exits(done)
		got = k.once("true", "--quiet").exits(done)
		expect.Equal(t, "what it says of a command that ran before", got.stdout+got.stderr, "")
	})
}

// A night that goes well has nothing to mail: also where no file can be written, which once needs
// none of.
func TestOnceOfAGoodNightSaysNothing(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	redis := redistest.Start(t)
	for range 3 {
		ran := execute(t, nil, "once", "nightly:{yyyyMMdd}", "--quiet", "--redis", redis.URL(), "--", "true").exits(done)
		expect.Equal(t, "what a good night prints", ran.stdout+ran.stderr, "")
	}
}

// Redis is away at the moment of the job, and comes back within --wait: the job runs once.
func TestOnceWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	k := newOnceKey(t, []string{"--redis", redis.URL()}, "away")
	redis.Kill()
	var nodes sync.WaitGroup
	codes := make([]int, 3)
	for i := range codes {
		nodes.Go(func() { codes[i] = k.once("true", "--wait", "2m").code })
	}
	redis.Restart()
	nodes.Wait()
	expect.Equal(t, "exit codes of all", codes, make([]int, 3))
	k.ran(1)
}

func TestTheRecordOfAPeriodStaysUntilItIsOver(t *testing.T) {
	t.Parallel()
	now := time.Date(2028, 2, 1, 3, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"bare": 24 * time.Hour, "{yyyyMMdd}": 69 * time.Hour, "{yyyy-MM}": (28*24 + 21 + 48) * time.Hour,
		"{YYYY-Www}": (5*24 + 21 + 48) * time.Hour,
		"{yyyy}":     (334*24 + 21 + 48) * time.Hour, "{yyyyMMddHHmm}": 48*time.Hour + time.Minute,
	} {
		_, ends, err := keyNow(text, map[bool]string{true: "UTC"}[text != "bare"], now)
		expect.NoError(t, "the key "+text, err)
		expect.Equal(t, "how long the record of "+text+" stays", keepUntil(ends, now), want)
	}
}
