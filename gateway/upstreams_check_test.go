//go:build check

package gateway

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// framework is a way to write a service. Each has POST /payments, with its defaults, and counts how
// often that ran, by key. testdata/upstreams has those that are not in Go.
type framework struct {
	name    string
	command []string // nil = in this process
}

var frameworks = []framework{
	{"Express 4", []string{"node", "express.mjs", "RUNS", "express4"}},
	{"Express 5", []string{"node", "express.mjs", "RUNS", "express5"}},
	{"Node, `new URL(request.url, base)`", []string{"node", "node.mjs", "RUNS"}},
	// Debian's package is for Debian's interpreter
	{"Django 3.2", []string{"/usr/bin/python3", "with_django.py", "RUNS"}},
	{"Python, `http.server`", []string{"python3", "plain.py", "RUNS"}},
	{"Rails 6.1", []string{"ruby", "rails.rb", "RUNS"}},
	{"Go, `net/http.ServeMux`", nil},
	{"Flask on gunicorn", []string{"/usr/bin/python3", "wsgi.py", "RUNS", "flask"}},
	{"Django on gunicorn", []string{"/usr/bin/python3", "wsgi.py", "RUNS", "django"}},
	{"Falcon on gunicorn", []string{"/usr/bin/python3", "wsgi.py", "RUNS", "falcon"}},
	{"Bottle on gunicorn", []string{"/usr/bin/python3", "wsgi.py", "RUNS", "bottle"}},
	{"Pyramid on gunicorn", []string{"/usr/bin/python3", "wsgi.py", "RUNS", "pyramid"}},
	{"FastAPI on uvicorn", []string{"/usr/bin/python3", "asgi.py", "RUNS", "fastapi"}},
	{"Starlette on uvicorn", []string{"/usr/bin/python3", "asgi.py", "RUNS", "starlette"}},
	{"nginx, `location ~ ^/payments$`", []string{"/usr/bin/python3", "front.py", "RUNS", "nginx"}},
	{"Symfony 5.4", []string{"/usr/bin/python3", "front.py", "RUNS", "php"}},
}

// service is a running one.
type service struct {
	framework

	url  string
	runs string // the path that tells them, which cannot be guessed
}

// startAll starts a service of each of some frameworks.
func startAll(t testing.TB, of []framework) []*service {
	t.Helper()
	folder := proctest.Packages(t, filepath.Join("testdata", "upstreams"))
	all := make([]*service, len(of))
	var starting sync.WaitGroup
	for i, f := range of {
		all[i] = &service{framework: f, runs: "/" + secret.New()}
		if f.command == nil {
			all[i].serve(t)
			continue
		}
		process, said := all[i].start(t, folder)
		starting.Go(func() {
			port, err := bufio.NewReader(said).ReadString('\n')
			if err != nil {
				t.Errorf("%s: %v before it has said its port", f.name, err)
				process.Signal(syscall.SIGKILL)
			}
			all[i].url = "http://127.0.0.1:" + strings.TrimSpace(port)
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// start starts the process of a service, which says its port first.
func (s *service) start(t testing.TB, folder string) (process *proctest.Process, said io.Reader) {
	t.Helper()
	words := append([]string{}, s.command...)
	for i, word := range words {
		if word == "RUNS" {
			words[i] = s.runs
		}
	}
	command := exec.Command(words[0], words[1:]...)
	command.Dir, command.Env = folder, append(os.Environ(), "TMPDIR="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatalf("a pipe: %v", err)
	}
	command.Stdout, command.Stderr = write, os.Stderr
	process, err = proctest.Start(command, syscall.SIGKILL)
	_ = write.Close()
	if err != nil {
		t.Fatalf("%s: %v; make deps installs what is missing", s.name, err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-process.Pid(), syscall.SIGKILL) // its own processes as well
		<-process.Done()
		_ = read.Close()
	})
	return process, read
}

// serve is the service in Go.
func (s *service) serve(t testing.TB) {
	t.Helper()
	var mu sync.Mutex
	runs := map[string]int{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		runs[r.Header.Get("Idempotency-Key")]++
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("GET "+s.runs, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(runs)
		clear(runs)
	})
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	s.url = web.URL
}

// take returns how often the payment has run since the last time, by key.
func (s *service) take(t testing.TB, client *http.Client) map[string]int {
	t.Helper()
	answer, err := client.Get(s.url + s.runs)
	if err != nil {
		t.Errorf("%s: its runs: %v", s.name, err)
		return nil
	}
	defer answer.Body.Close()
	runs := map[string]int{}
	if err := json.NewDecoder(answer.Body).Decode(&runs); err != nil {
		t.Errorf("%s: its runs: status %d, %v", s.name, answer.StatusCode, err)
	}
	return runs
}

// sayTo sends one request, whose line and headers may be anything, to an address, and returns the
// answer's status; 0 if there was none before the connection's end.
func sayTo(t testing.TB, url, line string, headers ...string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Errorf("dialing %s: %v", url, err)
		return 0
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	lines := append([]string{line, "Content-Length: 0", "Connection: close"}, headers...)
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		return 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if late, ok := err.(net.Error); ok && late.Timeout() { //nolint:errorlint // a connection's own error is not wrapped
		t.Errorf("%q: neither an answer nor an end within %v", line, patience)
	}
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode
}
