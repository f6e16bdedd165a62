package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// result is what came of a command line of coatcheck that ran in this process.
type result struct {
	t              testing.TB
	line           string
	code           int
	stdout, stderr string
}

// execute runs a command line in this process.
func execute(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	code, stdout, stderr := coatcheck(t, env, args...)
	if slices.Contains(args, "--json") && strings.HasPrefix(stdout, "[") {
		t.Errorf("coatcheck %s prints JSON without an object at the top: %s", strings.Join(args, " "), stdout)
	}
	return result{t, "coatcheck " + strings.Join(args, " "), code, stdout, stderr}
}

// exits checks the exit code, and that stderr holds each part.
func (r result) exits(code int, stderr ...string) result {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("%s: got exit code %d, want %d; it wrote:\n%s%s", r.line, r.code, code, r.stdout, r.stderr)
	}
	expect.Contains(r.t, "stderr of "+r.line, r.stderr, stderr...)
	return r
}

// prints checks that stdout holds each part.
func (r result) prints(stdout ...string) result {
	r.t.Helper()
	expect.Contains(r.t, "stdout of "+r.line, r.stdout, stdout...)
	return r
}

// conceals checks that the command has written none of these.
func (r result) conceals(secrets ...string) result {
	r.t.Helper()
	lacks(r.t, r.line, r.stdout+r.stderr, secrets...)
	return r
}

// into reads stdout as JSON.
func (r result) into(value any) result {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), value); err != nil {
		r.t.Fatalf("%s: got no JSON: %v; it wrote:\n%s%s", r.line, err, r.stdout, r.stderr)
	}
	return r
}

// lacks fails the test for each part that text holds, and goes on.
func lacks(t testing.TB, asked, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%s: %q is not wanted in:\n%s", asked, part, text)
		}
	}
}

// exits waits for the process's end, and checks its exit code and that stderr holds each part.
func (r *running) exits(code int, stderr ...string) {
	r.t.Helper()
	line := "coatcheck " + strings.Join(r.cmd.Args[1:], " ")
	if got := r.code(); got != code {
		r.t.Errorf("%s: got exit code %d, want %d; it wrote:\n%s%s", line, got, code, r.stdout, r.stderr)
	}
	expect.Contains(r.t, "stderr of "+line, r.stderr.String(), stderr...)
}

// endsWell asks the service to end and checks its exit code.
func (p *process) endsWell() {
	p.t.Helper()
	if got := p.stop(); got != done {
		p.t.Errorf("end of the service: got exit code %d, want %d; its log:\n%s", got, done, p.stderr)
	}
}

// answers sends a request and checks the answer's status.
func (p *process) answers(status int, method, path, body string, headers ...string) answer {
	p.t.Helper()
	a := p.do(method, path, body, headers...)
	a.is(p.t, method+" "+path, status)
	return a
}

// is checks the status of the answer to what was asked.
func (a answer) is(t testing.TB, asked string, status int) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: got status %d, want %d: %s", asked, a.status, status, a.body)
	}
}
