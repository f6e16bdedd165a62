package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// process is this test binary, running as one of its programs.
type process struct {
	t      testing.TB
	url    string
	stderr logtest.Text
	gate   string // a file: while it is there the process waits at its gate
	cmd    *exec.Cmd
	ended  chan struct{}
}

// start runs a program as a process of its own, which ends with the test. A gate is a step at which
// it waits until the test opens it; "" is none.
func start(t testing.TB, name string, waitAt step, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{}), gate: filepath.Join(t.TempDir(), "closed")}
	expect.NoError(t, "the gate is closed", os.WriteFile(p.gate, nil, 0o600))
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), asProgram+"="+name, gateStep+"="+string(waitAt), gateFile+"="+p.gate)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, out, err := os.Pipe()
	expect.NoError(t, "a pipe for the output", err)
	p.cmd.Stdout = out
	expect.NoError(t, "the service is started", p.launch())
	_ = out.Close()
	t.Cleanup(func() { p.kill(); _ = stdout.Close() })
	p.url = firstURL(stdout)
	if p.url == "" {
		p.kill()
		t.Fatalf("it told no address:\n%s", &p.stderr)
	}
	return p
}

// launch starts the process and waits for its end on one thread: with Pdeathsig a process dies with
// the thread that has made it.
func (p *process) launch() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
			close(p.ended)
		}
	}()
	return <-started
}

var address = regexp.MustCompile(`http://[0-9.:]+`)

func firstURL(stdout io.Reader) string {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url := address.FindString(lines.Text()); url != "" {
			return url
		}
	}
	return ""
}

// The leases of processes: short of those that are to lose it, so that tests need not wait long for
// its end, and long of all others, so that no machine is too slow for it.
const (
	short = "300ms"
	long  = "1h"
)

// payments starts the service on a Redis and a file.
func payments(t testing.TB, redis, file, lease string, waitAt step, args ...string) *process {
	t.Helper()
	args = append([]string{"--redis", redis, "--db", file, "--listen", "127.0.0.1:0", "--lease", lease}, args...)
	return start(t, "payments", waitAt, args...)
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// dies waits for the process to end by itself.
func (p *process) dies() {
	p.t.Helper()
	expect.Eventually(p.t, "the process ends by itself", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
}

func (p *process) stop() (code int) {
	p.signal(syscall.SIGTERM)
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

func (p *process) pause() { p.signal(syscall.SIGSTOP) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

// open lets every request through that waits at the gate, from now on.
func (p *process) open() {
	p.t.Helper()
	expect.NoError(p.t, "the gate is opened", os.Remove(p.gate))
}

// arrived waits until so many requests have come to the gate.
func (p *process) arrived(n int) {
	p.t.Helper()
	expect.Eventually(p.t, "the requests reach the gate", func() bool { return strings.Count(p.stderr.String(), "waiting at ") >= n })
}

// try sends a request with headers given as "Name: value".
func (p *process) try(method, path, body string, headers ...string) (answer, error) {
	request, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

func (p *process) ask(method, path, body string, headers ...string) answer {
	p.t.Helper()
	a, err := p.try(method, path, body, headers...)
	if err != nil {
		p.t.Fatalf("%s %s: %v\n%s", method, path, err, &p.stderr)
	}
	return a
}

// settled asks until no attempt is under way any more, and Redis is there.
func (p *process) settled(path, body string, headers ...string) (a answer) {
	p.t.Helper()
	expect.Eventually(p.t, "the operation is settled", func() bool {
		a = p.ask("POST", path, body, headers...)
		return a.code() != "idempotency-in-progress" && a.status != http.StatusServiceUnavailable
	})
	return a
}

// later sends a request of which the answer is wanted later; the zero answer if there is none.
func (p *process) later(path, body string, headers ...string) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		a, _ := p.try("POST", path, body, headers...)
		answered <- a
	}()
	return answered
}

// code is the problem that an answer is, "" if it is none.
func (a answer) code() string {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal([]byte(a.body), &problem)
	return problem.Code
}
