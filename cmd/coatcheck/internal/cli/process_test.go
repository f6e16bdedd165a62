package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/leftover"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// asProgram makes the test binary behave as the program, so that a test can start it as a process
// of its own and kill it.
const asProgram = "TEST_AS_COATCHECK" // not COATCHECK_…: commands do not inherit that

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main())
	}
	forgetIgnoredSignals()
	// A program that was built with the race detector sleeps for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	redisstore.LogTo(slog.New(slog.DiscardHandler)) // before any client runs
	code := m.Run()
	if code == 0 {
		if err := leftover.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// process is a service or a gateway that runs: in this process, or in one of its own.
type process struct {
	t      testing.TB
	stderr *logtest.Text
	banner started

	end   func()    // of its context, where it runs in this process
	cmd   *exec.Cmd // of its own process, else nil
	code  int       // that it ended with, once ended is closed
	ended chan struct{}

	// it answers for another service, so that the document of ours says nothing of it
	forOthers bool
}

// serve starts `coatcheck serve` on a free port in this process. It ends with the test.
func serve(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{t: t, stderr: &logtest.Text{}}
	p.read(p.run(serveArgs(args)), &p.banner)
	return p
}

// serveProcess starts it as a process of its own, which can be killed and gets signals.
func serveProcess(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{t: t, stderr: &logtest.Text{}}
	p.read(p.fork(serveArgs(args)), &p.banner)
	return p
}

func serveArgs(more []string) []string {
	return onStore(nil, append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, more...))
}

// onStore names the embedded store to what needs one and has none: most tests are not about where
// it is. TestStoreHasToBeNamed is.
func onStore(env map[string]string, args []string) []string {
	command := strings.Join(args[:min(len(args), 2)], " ")
	needs := strings.HasPrefix(command, "serve") || strings.HasPrefix(command, "gateway") || command == "config check" || command == "config print"
	_, said := env["COATCHECK_REDIS"]
	settings := env["COATCHECK_CONFIG"]
	for i, arg := range args {
		said = said || slices.Contains([]string{"--redis", "--dev", "--help"}, arg)
		if arg == "--config" {
			settings = args[i+1]
		}
	}
	text, _ := os.ReadFile(settings) // without a file there is none in it
	said = said || env["COATCHECK_DEV"] != "" || regexp.MustCompile(`(?m)^(redis|dev):`).Match(text)
	if said || !needs {
		return args
	}
	return append(slices.Clip(args), "--redis", "embedded:")
}

// run runs the program in this process until it is stopped, and returns its standard output.
func (p *process) run(args []string) io.Reader {
	ctx, cancel := context.WithCancel(p.t.Context())
	stdout, into := io.Pipe()
	p.end, p.ended = cancel, make(chan struct{})
	go func() {
		defer close(p.ended)
		p.code = run(ctx, args, os.Getenv, into, p.stderr)
		_ = into.Close() // the reader takes it as the end
	}()
	p.t.Cleanup(func() { p.stop() })
	return stdout
}

// fork runs the program in a process of its own, and returns its standard output.
func (p *process) fork(args []string) io.Reader {
	p.t.Helper()
	p.cmd = exec.Command(built(p.t), args...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = p.stderr
	proctest.SignalWithParent(p.cmd, syscall.SIGKILL)
	stdout, into, err := os.Pipe()
	expect.NoError(p.t, "open a pipe", err)
	p.cmd.Stdout = into
	err = p.cmd.Start()
	_ = into.Close() // the other process has it
	expect.NoError(p.t, "start the program", err)
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the exit code says it
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	p.t.Cleanup(func() {
		p.kill()
		_ = stdout.Close()
	})
	return stdout
}

// read takes the banner, which is the first line of standard output. What follows is of no
// interest.
func (p *process) read(stdout io.Reader, banner any) {
	p.t.Helper()
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, banner)
	}
	if err != nil {
		p.t.Fatalf("no banner, but %q: %v\n%s", line, err, p.stderr)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until it ends
}

// signal sends a signal to a process of its own.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if p.cmd == nil {
		p.t.Fatalf("%v is for a process of its own: start it with serveProcess", s)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("send %v: %v", s, err)
	}
}

// kill ends a process of its own at once, as kill -9 does. It may have ended by itself.
func (p *process) kill() {
	p.t.Helper()
	if p.cmd == nil {
		p.t.Fatal("kill -9 is for a process of its own: start it with serveProcess")
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop asks it to end, as SIGTERM does, and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	if p.cmd == nil {
		p.end()
	} else if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send SIGTERM: %v", err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("it has not ended %v after it was told to:\n%s", patience, p.stderr)
		return -1
	}
	return p.code
}

// patience ends what hangs. On a busy machine everything may take long.
const patience = 2 * time.Minute

// eventually is expect.Eventually for a condition that costs a request or a command: it looks less
// and less often, and every quarter of a second in the end.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := time.Duration(0)
	expect.Eventually(t, what, func() bool {
		time.Sleep(pause)
		pause = min(2*pause+5*time.Millisecond, 250*time.Millisecond)
		return holds()
	})
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() api.Code {
	var problem api.Problem
	_ = json.Unmarshal(a.body, &problem) // an answer that is no problem has no code
	return problem.Code
}

func (a answer) into(t testing.TB, value any) {
	t.Helper()
	if err := json.Unmarshal(a.body, value); err != nil {
		t.Fatalf("parse the answer %d %s: %v", a.status, a.body, err)
	}
}

// try sends a request with headers given as "Name: value".
func (p *process) try(method, path, body string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, p.banner.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	var transport http.RoundTripper = &http.Transport{DisableKeepAlives: true}
	if !p.forOthers {
		transport = apitest.RoundTripper(p.t, transport)
	}
	client := &http.Client{Timeout: patience, Transport: transport}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }() // read to its end
	bytes, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, bytes}, err
}

func (p *process) do(method, path, body string, headers ...string) answer {
	p.t.Helper()
	a, err := p.try(method, path, body, headers...)
	if err != nil {
		p.t.Fatalf("%s %s: %v; the service logged\n%s", method, path, err, p.stderr)
	}
	return a
}

const payment = `{"amount":1299,"currency":"EUR","to":"acct_1"}`

func (p *process) issue() string {
	p.t.Helper()
	var token api.TokenIssued
	p.do("POST", "/token", "").into(p.t, &token)
	return token.Token
}

func (p *process) ledger() api.Ledger {
	p.t.Helper()
	var ledger api.Ledger
	p.do("GET", "/payments", "").into(p.t, &ledger)
	return ledger
}
