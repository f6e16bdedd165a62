package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	verify "github.com/coatcheck/coatcheck/internal/testing/expect" // expect is another name here
)

// Nothing that a server answers keeps the suite from its end.
func TestServerThatSwitchesProtocolsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
		_ = http.NewResponseController(w).Flush() // it has gone, or it has not
		<-over
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(over) })
	ended := make(chan int, 1)
	go func() {
		var stdout, stderr bytes.Buffer
		ended <- run(t.Context(), []string{"-url", web.URL, "-run", "^replay-equal$", "-timeout", "2s", "-slow", "1s"}, &stdout, &stderr)
	}()
	select {
	case code := <-ended:
		if code == allPassed {
			t.Errorf("exit code: got %d, want another", code)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the suite runs on")
	}
}

func TestCommandLinesThatCanNotBeMeant(t *testing.T) {
	const address = "http://127.0.0.1:1"
	for _, row := range []struct {
		args string // divided by |
		says string
	}{
		{"", "-url is needed"},
		{"-url|127.0.0.1:80", "a URL such as"},
		{"-url|ftp://host", "a URL such as"},
		{"-url|http://host/?q", "a URL such as"},
		{"-url|" + address + "|-nonsense", "-nonsense"},
		{"-url|" + address + "|more", "there are flags only"},
		{"-url|" + address + "|-path|payments", "-path payments: a path that begins with a slash"},
		{"-url|" + address + "|-path|", "-path : a path"},
		{"-url|" + address + "|-count-url|total", "-count-url total"},
		{"-url|" + address + "|-token-url|/%zz", "-token-url /%zz"},
		{"-url|" + address + "|-body2|{}|-body|{}", "-body and -body2 are the same"},
		{"-url|" + address + "|-n|1", "-n is 2 at least"},
		{"-url|" + address + "|-long-key|9", "-long-key is 64 at least"},
		{"-url|" + address + "|-wait|0s", "longer than nothing"},
		{"-url|" + address + "|-slow|1m", "-timeout is not longer than -slow"},
		{"-url|" + address + "|-lease|-1s", "not negative"},
		{"-url|" + address + "|-principal-a|A: 1", "belong together"},
		{"-url|" + address + "|-principal-a|A: 1|-principal-b|A: 1", "are the same"},
		{"-url|" + address + "|-header|idempotency-token", "-token-url is needed"},
		{"-url|" + address + "|-H|no colon", "'Name: value'"},
		{"-url|" + address + "|-H|", "a header is needed"},
		{"-url|" + address + "|-marker|: 1", "'Name: value'"},
		{"-url|" + address + "|-service-url|" + address, "belong together"},
		{"-url|" + address + "|-service-url|127.0.0.1|-resolve|PUT /{operation}", "-service-url 127.0.0.1: a URL such as"},
		{"-url|" + address + "|-service-url|" + address + "|-resolve|/operations", "-resolve is a method and a path"},
		{"-url|" + address + "|-run|(", "missing closing"},
		{"-url|" + address + "|-run|nothing", "leave no check"},
		{"-url|" + address, "not reachable"},
	} {
		var stdout, stderr bytes.Buffer
		args := slices.DeleteFunc(strings.Split(row.args, "|"), func(arg string) bool { return row.args == "" })
		if code := run(t.Context(), args, &stdout, &stderr); code != usage || !strings.Contains(stderr.String(), row.says) || stdout.Len() > 0 {
			t.Errorf("%q: got exit code %d, %s%s; want exit code %d and on standard error alone %q", args, code, &stdout, &stderr, usage, row.says)
		}
	}
}

func TestServersThatAreNotAsTheCommandLineSays(t *testing.T) {
	for _, row := range []struct{ flag, value, says string }{
		{"-path", "/nowhere", "set -method, -path"},
		{"-method", "PUT", "set -method, -path"},
		{"-count-url", "/nowhere", "-count-url /nowhere"},
		{"-count-field", "sum", "a number in sum"},
		{"-count-field", "total.deep", "a number in total.deep"},
		{"-token-url", "/nowhere", "-token-url /nowhere"},
		{"-token-field", "other", "a token in other"},
	} {
		var stdout, stderr bytes.Buffer
		args := append(openShop(t, ""), row.flag, row.value)
		if code := run(t.Context(), args, &stdout, &stderr); code != usage || !strings.Contains(stderr.String(), row.says) {
			t.Errorf("%s %s: got exit code %d, %s%s; want exit code %d and %q", row.flag, row.value, code, &stdout, &stderr, usage, row.says)
		}
	}
}

func TestListTellsEveryCheckWithoutAServer(t *testing.T) {
	var stdout, stderr bytes.Buffer
	verify.Equal(t, "-list: exit code", run(t.Context(), []string{"-list"}, &stdout, &stderr), allPassed)
	verify.Equal(t, "-list: standard error", stderr.String(), "")
	for _, c := range checks() {
		verify.Contains(t, "-list", stdout.String(), c.name, c.requirement)
	}
}

func TestHelpTellsEveryFlag(t *testing.T) {
	var stdout, stderr bytes.Buffer
	verify.Equal(t, "-help: exit code", run(t.Context(), []string{"-help"}, &stdout, &stderr), allPassed)
	verify.Contains(t, "-help", stderr.String(), "-principal-b Name: value")
}

func TestNotApplicableFailsOnlyWhenStrict(t *testing.T) {
	args := append(openShop(t, ""), "-run", "principals|keys-differ", "-principal-a", "", "-principal-b", "")
	for flag, want := range map[string]int{"-strict=false": allPassed, "-strict": failed} {
		out, code := report(t, append(args, flag)...)
		verify.Equal(t, flag+": exit code", code, want)
		verify.Equal(t, flag+": ok", out.OK, want == allPassed)
		verify.Equal(t, flag+": checks passed", out.Passed, 1)
		verify.Equal(t, flag+": checks that were not applicable", out.NotApplicable, 1)
		verify.Equal(t, flag+": why", out.Checks[1].Reason, "needs -principal-a and -principal-b")
	}
}

func TestTableTellsWhatWasWrong(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := append(openShop(t, otherBytes), "-run", "replay-equal|replay-marker|principals|tokens-differ", "-principal-a", "", "-principal-b", "", "-strict", "-H", "X-Pass: secret")
	verify.Equal(t, "exit code", run(t.Context(), args, &stdout, &stderr), failed)
	verify.Equal(t, "standard error", stderr.String(), "")
	verify.Contains(t, "the report", stdout.String(),
		"FAIL  MUST     replay-equal", "sent      POST http://", "came      201, Content-Type: application/json", "expected  the first answer: 201",
		"n/a   MUST     principals", "reason    needs -principal-a and -principal-b", "PASS  PROMISE  tokens-differ", "X-Pass: …",
		"1 passed, 2 failed, 1 not applicable, which counts as failed (-strict)\n")
	if strings.Contains(stdout.String(), "secret") {
		t.Errorf("the report tells a header that the caller gave:\n%s", &stdout)
	}
}

func TestInterruptedRunHasNotPassed(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	args := openShop(t, "")
	var stdout lineHook
	stdout.line = func(line string) {
		if strings.Contains(line, "key-list") {
			interrupt()
		}
	}
	var stderr bytes.Buffer
	verify.Equal(t, "exit code", run(ctx, append(args, "-run", "key"), &stdout, &stderr), failed)
	verify.Contains(t, "the report", stdout.String(), "not looked at: interrupted")
}

// lineHook calls a function with all that is written.
type lineHook struct {
	bytes.Buffer
	line func(string)
}

func (h *lineHook) Write(p []byte) (int, error) {
	h.line(string(p))
	return h.Buffer.Write(p)
}

// A server that hangs up without an answer is what makes net/http send a request with an
// Idempotency-Key again.
func TestNoRequestIsSentTwice(t *testing.T) {
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 { // the preflight
			w.WriteHeader(http.StatusCreated)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("taking the connection over: %v", err)
			return
		}
		conn.Close()
	}))
	defer web.Close()
	out, code := report(t, "-url", web.URL, "-run", "replay-equal")
	verify.Equal(t, "exit code", code, failed)
	verify.Equal(t, "requests, the preflight included", requests.Load(), 2)
	verify.Contains(t, "what came, as the check says", out.Checks[0].Came, "no answer")
}

// A server that never answers costs the time of one answer.
func TestServerThatDoesNotAnswerFailsInTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	verify.NoError(t, "listening", err)
	defer listener.Close()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-url", "http://" + listener.Addr().String(), "-timeout", "50ms"}, &stdout, &stderr); code != usage {
		t.Errorf("a server that never answers: got exit code %d, want %d: %s%s", code, usage, &stdout, &stderr)
	}
}

func TestServerWithTLS(t *testing.T) {
	s := newShop("")
	web := httptest.NewTLSServer(s)
	defer web.Close()
	o, err := parse([]string{"-url", web.URL, "-count-url", "/payments", "-strict", "-n", "5", "-run", "replay-equal|hop|half|^burst"}, os.Stderr)
	verify.NoError(t, "reading the command line", err)
	suite := newSuite(o)
	suite.tls.RootCAs = web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	var stdout, stderr bytes.Buffer
	if code := suite.report(t.Context(), o.choose(checks()), &stdout, &stderr); code != allPassed {
		t.Errorf("a server with TLS: got exit code %d, want %d: %s%s", code, allPassed, &stdout, &stderr)
	}
}

func TestRequestsThatAreTooQuickToBeMetAreNotApplicable(t *testing.T) {
	out, code := report(t, append(openShop(t, busyWaits), "-slow-header", "X-Nothing: yes", "-slow", "9s", "-run", "409-in-progress|hang-up|slow-owner")...)
	verify.Equal(t, "exit code", code, allPassed)
	verify.Equal(t, "checks that were not applicable", skipped(out), []string{"409-in-progress", "hang-up", "slow-owner"})
}

func TestHandlerQuickerThanItsLeaseShowsNothing(t *testing.T) {
	out, code := report(t, append(openShop(t, ""), "-lease", time.Hour.String(), "-run", "slow-owner")...)
	verify.Equal(t, "exit code", code, allPassed)
	verify.Equal(t, "checks that were not applicable", out.NotApplicable, 1)
}
