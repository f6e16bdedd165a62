package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/apitest"
	"github.com/coatcheck/coatcheck/internal/logtest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// asProgram makes the test binary behave as the program, so that a test can start it as a process of its own and kill it.
const asProgram = "COATCHECK_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// process is a running `coatcheck serve`.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *logtest.Text
	banner started
	waited sync.Once

	forOthers bool // it answers for another service, so that the document of ours says nothing of it
}

// serve starts `coatcheck serve` on a free port as a process of its own, which ends with the test.
func serve(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{t: t, stderr: &logtest.Text{}}
	p.cmd = exec.Command(os.Args[0], append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &p.banner) != nil {
		p.kill()
		t.Fatalf("no banner: %s %v\n%s", line, err, p.stderr)
	}
	return p
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	p.waited.Do(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // its exit status is the signal's
	})
}

// stop asks the process to end and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	code := -1
	p.waited.Do(func() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			p.t.Error(err)
		}
		_ = p.cmd.Wait() // the exit code is what is asked for
		code = p.cmd.ProcessState.ExitCode()
	})
	return code
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() wire.Code {
	var problem wire.Problem
	_ = json.Unmarshal(a.body, &problem) // an answer that is no problem has no code
	return problem.Code
}

func (a answer) into(t testing.TB, value any) {
	t.Helper()
	if err := json.Unmarshal(a.body, value); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
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
	client := &http.Client{Timeout: 20 * time.Second, Transport: transport}
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
		p.t.Fatalf("%s %s: %v\n%s", method, path, err, p.stderr)
	}
	return a
}

const payment = `{"amount":1299,"currency":"EUR","to":"acct_1"}`

func (p *process) issue() string {
	p.t.Helper()
	var token wire.TokenIssued
	p.do("POST", "/token", "").into(p.t, &token)
	return token.Token
}

func (p *process) ledger() wire.Ledger {
	p.t.Helper()
	var ledger wire.Ledger
	p.do("GET", "/payments", "").into(p.t, &ledger)
	return ledger
}
