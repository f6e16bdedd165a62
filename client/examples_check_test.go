//go:build check

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// language is one of the clients under clients/, run by its real interpreter.
type language struct {
	name    string
	program string // the interpreter
	install string // how to get it
	script  string // the example that charges
	ids     string // the example that stamps
}

// pythonPackage is where Python finds the package that is not installed.
const pythonPackage = "../clients/python/src"

var languages = []language{
	{"python", "python3", "install Python 3.9 or later, on Debian: apt-get install python3", "../clients/python/examples/worker.py", "../clients/python/examples/ids.py"},
	{"node", "node", "install Node 18 or later, on Debian: apt-get install nodejs", "../clients/node/examples/worker.mjs", "../clients/node/examples/ids.mjs"},
}

// inEach runs a test with the worker of each language and a service and ledger of its own.
func inEach(t *testing.T, test func(t *testing.T, w *workers)) {
	t.Helper()
	for _, language := range languages {
		t.Run(language.name, func(t *testing.T) {
			test(t, &workers{service: embedded(t), language: language, dir: t.TempDir()})
		})
	}
}

// workers are processes of one language's example that share a ledger.
type workers struct {
	*service
	language

	dir string
}

// answer is the line that a worker prints, and how it ended.
type answer struct {
	Order    string `json:"order"`
	Payload  string `json:"payload"`
	Payment  string `json:"payment"`
	Fence    int64  `json:"fence"`
	Status   int    `json:"status"`
	Replayed bool   `json:"replayed"`

	Error      string `json:"error"`
	Detail     string `json:"detail"`
	RetryAfter *int   `json:"retry_after"`
	Recorded   *bool  `json:"recorded"`

	code   int
	stderr string
}

// worker is a running process.
type worker struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	once   sync.Once
}

// start starts a worker for a token. It ends with the test at the latest.
func (w *workers) start(t testing.TB, token string, args ...string) *worker {
	t.Helper()
	all := []string{w.script, "--server", w.url, "--token", token, "--order", "42", "--ledger", w.ledgerFile()}
	return w.language.start(t, append(all, args...)...)
}

// end waits for a process's end.
func (p *worker) end() {
	p.once.Do(func() {
		timer := time.AfterFunc(2*patience, func() { _ = p.cmd.Process.Kill() })
		defer timer.Stop()
		_ = p.cmd.Wait() // the exit code is what counts
	})
}

// wait waits for a worker's end and reads what it printed.
func (p *worker) wait() (got answer) {
	p.t.Helper()
	p.end()
	got.code, got.stderr = p.cmd.ProcessState.ExitCode(), p.stderr.String()
	if p.stdout.Len() > 0 {
		if err := json.Unmarshal(p.stdout.Bytes(), &got); err != nil {
			p.t.Fatalf("the worker printed %s: %v\n%s", &p.stdout, err, &p.stderr)
		}
	}
	return got
}

func (w *workers) run(t testing.TB, token string, args ...string) answer {
	t.Helper()
	return w.start(t, token, args...).wait()
}

// refused fails the test unless a worker ended with this error.
func (w *workers) refused(t testing.TB, got answer, code string, exit int) {
	t.Helper()
	if got.Error != code || got.code != exit || got.Payment != "" {
		t.Fatalf("the worker ended with %+v, want the error %s, exit code %d and no payment", got, code, exit)
	}
}

func (w *workers) ledgerFile() string { return filepath.Join(w.dir, "ledger.jsonl") }

// charged reads the ledger.
func (w *workers) charged(t testing.TB) []answer {
	t.Helper()
	text, err := os.ReadFile(w.ledgerFile())
	if err != nil && !os.IsNotExist(err) {
		t.Fatalf("reading the ledger: %v", err)
	}
	var charges []answer
	for line := range strings.Lines(string(text)) {
		var charge answer
		if err := json.Unmarshal([]byte(line), &charge); err != nil {
			t.Fatalf("a line of the ledger is %s: %v", line, err)
		}
		charges = append(charges, charge)
	}
	return charges
}

// chargedOnce fails the test unless the ledger holds this payment and no other.
func (w *workers) chargedOnce(t testing.TB, payment string) {
	t.Helper()
	if charges := w.charged(t); len(charges) != 1 || charges[0].Payment != payment || payment == "" {
		t.Fatalf("the ledger has %+v, want the payment %q alone", charges, payment)
	}
}

func TestExamplesChargeOnceAndReplay(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		token := issue(t, w.Client)
		first := w.run(t, token)
		if first.code != 0 || first.Replayed || first.Order != "42" || first.Status != 201 || first.Fence == 0 {
			t.Fatalf("the first worker ended with %+v, want exit code 0, order 42, status 201, a fence and no replay", first)
		}
		second := w.run(t, token)
		if second.code != 0 || !second.Replayed || second.Payment != first.Payment || second.Fence != first.Fence || second.Status != 201 {
			t.Fatalf("the second worker ended with %+v, want a replay of %+v", second, first)
		}
		w.chargedOnce(t, first.Payment)
		w.refused(t, w.run(t, token, "--payload", "99.99 EUR"), "idempotency-payload-mismatch", 1)
		w.chargedOnce(t, first.Payment)
		// one that looks like a flag as well
		for _, other := range []string{"made-up", "-made-up", "--order"} {
			w.refused(t, w.run(t, other), "idempotency-token-unknown", 1)
		}
		w.chargedOnce(t, first.Payment)
	})
}

// The workers and this package make one fingerprint, so each replays what another has charged.
func TestExamplesReplayEachOthersAnswers(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		token := issue(t, w.Client)
		first := w.run(t, token, "--payload", "12,99 €")
		terms := client.ClaimOptions{Fingerprint: client.Fingerprint("charge", "42", "12,99 €")}
		result, err := w.Do(t.Context(), token, terms, mustNotRun(t))
		var got answer
		if err != nil || !result.Replayed || json.Unmarshal(result.Value, &got) != nil || got.Payment != first.Payment {
			t.Fatalf("Do after a worker: got %+v, %v, want a replay of %+v", result, err, first)
		}

		token = issue(t, w.Client)
		_, err = w.Do(t.Context(), token, terms, func(context.Context, *client.Attempt) ([]byte, error) {
			return []byte(`{"order":"42","payment":"of Go"}`), nil
		})
		must(t, "Do", err)
		if got := w.run(t, token, "--payload", "12,99 €"); got.code != 0 || !got.Replayed || got.Payment != "of Go" || got.Status != 200 {
			t.Errorf("the worker ended with %+v, want exit code 0 and the replay of Do's payment `of Go` with status 200", got)
		}
	})
}

func TestExamplesChargeOnceAmongTenAtOnce(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		token := issue(t, w.Client)
		var started []*worker
		for range 10 {
			started = append(started, w.start(t, token))
		}
		payments := map[string]bool{}
		for _, process := range started {
			got := process.wait()
			switch {
			case got.code == 0:
				payments[got.Payment] = true
			case got.code != 75 || got.Error != "idempotency-in-progress" || got.RetryAfter == nil || *got.RetryAfter < 1:
				t.Errorf("a worker of ten ended with %+v, want success, or exit code 75 with idempotency-in-progress and a wait", got)
			}
		}
		last := w.run(t, token)
		payments[last.Payment] = true
		if len(payments) != 1 || !last.Replayed {
			t.Errorf("the workers reported the payments %v, the last ended with %+v, want one payment, replayed to the last", payments, last)
		}
		w.chargedOnce(t, last.Payment)
	})
}

func TestExamplesChargeNothingAfterACrash(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		token := issue(t, w.Client)
		if got := w.run(t, token, "--crash-after-claim", "--lease-ms", "3600000"); got.code != 70 {
			t.Fatalf("the worker that crashes ended with %+v, want exit code 70", got)
		}
		w.refused(t, w.run(t, token), "idempotency-in-progress", 75)

		token = issue(t, w.Client)
		if got := w.run(t, token, "--crash-after-claim", "--lease-ms", "200"); got.code != 70 {
			t.Fatalf("the worker that crashes ended with %+v, want exit code 70", got)
		}
		expect.Eventually(t, "the lease lapses", func() bool { return state(t, w.Client, token) == api.StateInDoubt })
		for range 2 {
			w.refused(t, w.run(t, token), "idempotency-outcome-unknown", 1)
		}
		if charges := w.charged(t); len(charges) != 0 {
			t.Errorf("the ledger has %+v, want nothing", charges)
		}
	})
}

// A worker is paused for longer than its lease, and another takes over: when the first wakes up it
// charges nothing.
func TestExamplesEndWhenSuperseded(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		token, gate := issue(t, w.Client), filepath.Join(w.dir, "gate")
		first := w.start(t, token, "--policy", "takeover", "--lease-ms", "5000", "--wait-for", gate)
		expect.Eventually(t, "the first has the claim", func() bool { return state(t, w.Client, token) != api.StateIssued })
		must(t, "SIGSTOP", first.cmd.Process.Signal(syscall.SIGSTOP))
		expect.Eventually(t, "its lease lapses", func() bool { return state(t, w.Client, token) == api.StateInDoubt })
		second := w.run(t, token, "--policy", "takeover")
		if second.code != 0 || second.Replayed {
			t.Fatalf("the worker that takes over ended with %+v, want exit code 0 and no replay", second)
		}
		must(t, "opening the gate", os.WriteFile(gate, nil, 0o600))
		must(t, "SIGCONT", first.cmd.Process.Signal(syscall.SIGCONT))
		w.refused(t, first.wait(), "idempotency-superseded", 1)
		w.chargedOnce(t, second.Payment)
	})
}

// Under hold the heartbeat's answer is how a worker learns that its claim is gone.
func TestExamplesEndWhenTheServiceSaysThatTheClaimIsLost(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		w.proxy.disturb(only("extend", 0, says(410, "application/problem+json", `{"code":"idempotency-token-unknown"}`)))
		got := w.run(t, issue(t, w.Client), "--lease-ms", "300", "--wait-for", filepath.Join(w.dir, "never"))
		w.refused(t, got, "idempotency-superseded", 1)
	})
}

func TestExamplesSendHeartbeats(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		token, gate := issue(t, w.Client), filepath.Join(w.dir, "gate")
		first := w.start(t, token, "--lease-ms", "5000", "--wait-for", gate)
		expect.Eventually(t, "heartbeats", func() bool { return w.proxy.count("extend") >= 4 })
		status, err := w.Status(t.Context(), token)
		succeeds(t, "Status", err)
		expect.Equal(t, "attempts of a worker that sends heartbeats", status.Attempts, 1)
		must(t, "opening the gate", os.WriteFile(gate, nil, 0o600))
		got := first.wait()
		if got.code != 0 || got.Replayed {
			t.Errorf("the worker ended with %+v, want exit code 0 and no replay", got)
		}
		w.chargedOnce(t, got.Payment)
	})
}

func TestExamplesKnowWhatALostReplyMeans(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		for name, lose := range map[string]fault{"lost": loseReply, "cut off": cutOff, "proxy": says(502, "text/html", "bad gateway")} {
			w.proxy.disturb(only("claim", 0, lose))
			token := issue(t, w.Client)
			w.refused(t, w.run(t, token), "unknown-outcome", 1)
			expect.Equal(t, "the token's state after a claim that was never answered", state(t, w.Client, token), api.StateIssued)
			if charges := w.charged(t); len(charges) != 0 {
				t.Fatalf("after a claim whose reply is %s: the ledger has %+v, want nothing", name, charges)
			}
		}
		w.proxy.disturb(only("claim", 0, func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			http.Redirect(rw, r, r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}))
		w.refused(t, w.run(t, issue(t, w.Client)), "unknown-outcome", 1)

		for n, lose := range []fault{loseReply, says(502, "text/html", "bad gateway")} {
			before := w.proxy.count("complete")
			w.proxy.disturb(only("complete", 2, lose))
			token := issue(t, w.Client)
			first := w.run(t, token)
			if n := w.proxy.count("complete") - before; first.code != 0 || first.Replayed || n != 3 {
				t.Errorf("a worker that loses two replies to complete ended with %+v after %d requests, want exit code 0, no replay and 3 requests", first, n)
			}
			if got := w.run(t, token); got.Payment != first.Payment || !got.Replayed {
				t.Errorf("the next worker ended with %+v, want a replay of %+v", got, first)
			}
			if charges := w.charged(t); len(charges) != n+1 || charges[n].Payment != first.Payment {
				t.Errorf("the ledger has %+v, want %d payments, %s as the last", charges, n+1, first.Payment)
			}
		}
	})
}

func TestExamplesKnowThatNothingWasDone(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		w.refused(t, w.run(t, "a-token", "--server", "http://"+proctest.ClosedPort(t)), "unavailable", 75)
		w.proxy.disturb(only("claim", 1, says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`)))
		w.refused(t, w.run(t, "a-token"), "store-unavailable", 75)
	})
}

func TestExamplesReportThatAnAnswerIsNotRecorded(t *testing.T) {
	inEach(t, func(t *testing.T, w *workers) {
		w.proxy.disturb(only("complete", 0, says(410, "application/problem+json", `{"code":"idempotency-token-unknown"}`)))
		got := w.run(t, issue(t, w.Client))
		if got.Error != "idempotency-token-unknown" || got.Recorded == nil || *got.Recorded || got.code != 1 || len(w.charged(t)) != 1 {
			t.Errorf("the worker ended with %+v, want idempotency-token-unknown, exit code 1, not recorded, and one payment in the ledger", got)
		}
	})
}
