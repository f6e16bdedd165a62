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
)

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
		{"-url|" + address + "|-run|(", "missing closing"},
		{"-url|" + address + "|-run|nothing", "leave no check"},
		{"-url|" + address, "not reachable"},
	} {
		var stdout, stderr bytes.Buffer
		args := slices.DeleteFunc(strings.Split(row.args, "|"), func(arg string) bool { return row.args == "" })
		if code := run(t.Context(), args, &stdout, &stderr); code != usage || !strings.Contains(stderr.String(), row.says) || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, %s%s, want %q", args, code, &stdout, &stderr, row.says)
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
			t.Errorf("%s %s: exit code %d, %s%s", row.flag, row.value, code, &stdout, &stderr)
		}
	}
}

func TestListTellsEveryCheckWithoutAServer(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-list"}, &stdout, &stderr); code != allPassed || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
	for _, c := range checks() {
		if !strings.Contains(stdout.String(), c.name) || !strings.Contains(stdout.String(), c.requirement) {
			t.Errorf("%s is not told", c.name)
		}
	}
}

func TestHelpTellsEveryFlag(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-help"}, &stdout, &stderr); code != allPassed || !strings.Contains(stderr.String(), "-principal-b Name: value") {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

func TestNotApplicableFailsOnlyWhenStrict(t *testing.T) {
	args := append(openShop(t, ""), "-run", "principals|keys-differ", "-principal-a", "", "-principal-b", "")
	for flag, want := range map[string]int{"-strict=false": allPassed, "-strict": failed} {
		out, code := report(t, append(args, flag)...)
		if code != want || out.OK != (want == allPassed) || out.Passed != 1 || out.NotApplicable != 1 || out.Checks[1].Reason != "needs -principal-a and -principal-b" {
			t.Errorf("%s: exit code %d, %+v", flag, code, out)
		}
	}
}

func TestTableTellsWhatWasWrong(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := append(openShop(t, otherBytes), "-run", "replay-equal|replay-marker|principals|tokens-differ", "-principal-a", "", "-principal-b", "", "-strict", "-H", "X-Pass: secret")
	if code := run(t.Context(), args, &stdout, &stderr); code != failed || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
	for _, want := range []string{
		"FAIL  MUST     replay-equal", "sent      POST http://", "came      201, Content-Type: application/json", "expected  the first answer: 201",
		"n/a   MUST     principals", "reason    needs -principal-a and -principal-b", "PASS  PROMISE  tokens-differ", "X-Pass: …",
		"1 passed, 2 failed, 1 not applicable, which counts as failed (-strict)\n",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, &stdout)
		}
	}
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
	if code := run(ctx, append(args, "-run", "key"), &stdout, &stderr); code != failed || !strings.Contains(stdout.String(), "not looked at: interrupted") {
		t.Errorf("exit code %d, %s%s", code, &stdout.Buffer, &stderr)
	}
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

// A server that hangs up without an answer is what makes net/http send a request with an Idempotency-Key again.
func TestNoRequestIsSentTwice(t *testing.T) {
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 { // the preflight
			w.WriteHeader(http.StatusCreated)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	defer web.Close()
	out, code := report(t, "-url", web.URL, "-run", "replay-equal")
	if code != failed || requests.Load() != 2 || !strings.Contains(out.Checks[0].Came, "no answer") {
		t.Errorf("exit code %d, %d requests, %+v", code, requests.Load(), out.Checks)
	}
}

// A server that never answers costs the time of one answer.
func TestServerThatDoesNotAnswerFailsInTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-url", "http://" + listener.Addr().String(), "-timeout", "50ms"}, &stdout, &stderr); code != usage {
		t.Errorf("exit code %d, %s%s", code, &stdout, &stderr)
	}
}

func TestServerWithTLS(t *testing.T) {
	s := newShop("")
	web := httptest.NewTLSServer(s)
	defer web.Close()
	o, err := parse([]string{"-url", web.URL, "-count-url", "/payments", "-strict", "-n", "5", "-run", "replay-equal|hop|half|^burst"}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	suite := newSuite(o)
	suite.tls.RootCAs = web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	var stdout, stderr bytes.Buffer
	if code := suite.report(t.Context(), o.choose(checks()), &stdout, &stderr); code != allPassed {
		t.Errorf("exit code %d, %s%s", code, &stdout, &stderr)
	}
}

func TestRequestsThatAreTooQuickToBeMetAreNotApplicable(t *testing.T) {
	out, code := report(t, append(openShop(t, busyWaits), "-slow-header", "X-Nothing: yes", "-slow", "9s", "-run", "409-in-progress|hang-up|slow-owner")...)
	if code != allPassed || !slices.Equal(skipped(out), []string{"409-in-progress", "hang-up", "slow-owner"}) {
		t.Errorf("exit code %d, %+v", code, out)
	}
}

func TestHandlerQuickerThanItsLeaseShowsNothing(t *testing.T) {
	out, code := report(t, append(openShop(t, ""), "-lease", time.Hour.String(), "-run", "slow-owner")...)
	if code != allPassed || out.NotApplicable != 1 {
		t.Errorf("exit code %d, %+v", code, out)
	}
}
