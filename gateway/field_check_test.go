//go:build check

package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

const (
	fieldKeys       = 200
	fieldDuplicates = 50
	fieldBlock      = 20 // keys whose duplicates come mixed
	fieldClients    = 64
	fieldEarly      = 20 // keys that are answered before their body is read
)

// fieldServices are servers that people put behind a gateway, each with the words that start it;
// nil is Go, in this process.
var fieldServices = []struct {
	name    string
	command []string
}{
	{"gunicorn sync", []string{"/usr/bin/gunicorn", "--worker-class", "sync", "--workers", "4", "--bind", "127.0.0.1:PORT", "--log-level", "critical", "app:application"}},
	{"gunicorn gthread", []string{"/usr/bin/gunicorn", "--worker-class", "gthread", "--workers", "2", "--threads", "4", "--keep-alive", "5", "--bind", "127.0.0.1:PORT", "--log-level", "critical", "app:application"}},
	{"uwsgi", []string{"uwsgi", "--http-socket", "127.0.0.1:PORT", "--plugin", "python3", "--wsgi-file", "app.py", "--master", "--processes", "4", "--die-on-term", "--no-orphans", "--need-app", "--disable-logging", "--logto", "/dev/null"}},
	{"node", []string{"node", "service.mjs", "PORT"}},
	{"Go", nil},
}

// fieldService is a service that can be restarted on its port. Its book has every effect, and every
// answer that was sent.
type fieldService struct {
	t       *testing.T
	command []string
	port    int
	book    string
	process *proctest.Process
	web     *http.Server
}

func newFieldService(t *testing.T, command []string) *fieldService {
	t.Helper()
	port, err := proctest.Reserve()
	expect.MustEqual(t, "the error of reserving a port", err, nil)
	t.Cleanup(port.Release)
	s := &fieldService{t: t, command: command, port: port.Number(), book: filepath.Join(t.TempDir(), "book")}
	expect.MustEqual(t, "the error of making the book", os.WriteFile(s.book, nil, 0o600), nil)
	s.start()
	t.Cleanup(func() { s.stop(true) })
	return s
}

func (s *fieldService) address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// start starts the service, and waits until it takes connections.
func (s *fieldService) start() {
	if s.command == nil {
		s.serve()
		return
	}
	words := append([]string{}, s.command...)
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "PORT", strconv.Itoa(s.port))
	}
	began := time.Now()
	command := exec.Command(words[0], words[1:]...)
	command.Dir, command.Env, command.Stderr = filepath.Join("testdata", "field"), append(os.Environ(), "BOOK="+s.book, "PYTHONDONTWRITEBYTECODE=1"), os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process, err := proctest.Start(command, syscall.SIGKILL)
	if err != nil {
		s.t.Errorf("%v; make deps installs what is missing", err)
		return
	}
	s.process = process
	for s.process.Running() {
		conn, err := net.Dial("tcp", s.address())
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	if time.Since(began) < patience { // a worker that was killed may still have had the port
		time.Sleep(20 * time.Millisecond)
		s.start()
		return
	}
	s.t.Errorf("the service ended before it took a connection: %v", s.process.Err())
}

// stop ends the service: at once and with all its processes, or as it ends when it is asked to.
func (s *fieldService) stop(atOnce bool) {
	switch {
	case s.command == nil && atOnce:
		_ = s.web.Close()
	case s.command == nil:
		_ = s.web.Shutdown(context.Background())
	case !s.process.Running():
	case atOnce:
		_ = syscall.Kill(-s.process.Pid(), syscall.SIGKILL)
		<-s.process.Done()
	default:
		s.ask()
	}
}

// ask asks the service to end, and ends it if it does not, as a supervisor does: a uwsgi that has
// just started may miss the signal.
func (s *fieldService) ask() {
	for range 5 {
		s.process.Signal(syscall.SIGTERM)
		select {
		case <-s.process.Done():
			return
		case <-time.After(time.Second):
		}
	}
	s.stop(true)
}

// serve is the service in Go.
func (s *fieldService) serve() {
	listener, err := net.Listen("tcp", s.address())
	if err != nil {
		s.t.Errorf("the service cannot listen: %v", err)
		return
	}
	s.web = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if r.Header.Get("X-Early") != "" { // with the body unread
			s.note("effect", key)
			http.Error(w, "no money", http.StatusPaymentRequired)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.note("effect", key)
		time.Sleep(rand.N(30 * time.Millisecond))
		body := "paid " + key
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusCreated)
		_, err := io.WriteString(w, body)
		if err == nil && http.NewResponseController(w).Flush() == nil {
			s.note("sent", key)
		}
	})}
	go func() { _ = s.web.Serve(listener) }()
}

func (s *fieldService) note(word, key string) {
	book, err := os.OpenFile(s.book, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // the test has ended, and its folder
	}
	defer book.Close()
	_, _ = fmt.Fprintln(book, word, key)
}

// read returns how often each key had its effect, and which answers were sent.
func (s *fieldService) read() (effects map[string]int, sent map[string]bool) {
	s.t.Helper()
	text, err := os.ReadFile(s.book)
	expect.MustEqual(s.t, "the error of reading the book", err, nil)
	effects, sent = map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		word, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "sent" {
			sent[key] = true
			continue
		}
		effects[key]++
	}
	return effects, sent
}

// fieldRun is what the clients of one service got.
type fieldRun struct {
	t       *testing.T
	doors   []*rig
	mu      sync.Mutex
	paid    map[string]int // by key
	unknown map[string]int // by key: the outcome, for good
	retried int
}

// pay sends one duplicate until it has an answer that stays.
func (f *fieldRun) pay(door *rig, key string) {
	for f.t.Context().Err() == nil {
		a := door.do("POST", "/payments", "12.99 EUR", "Idempotency-Key: "+key, "Prefer: wait=100")
		f.mu.Lock()
		switch {
		case a.status == http.StatusCreated && a.body == "paid "+key:
			f.paid[key]++
		case a.status == http.StatusConflict && strings.Contains(a.body, `"idempotency-outcome-unknown"`):
			f.unknown[key]++
		case a.status == http.StatusServiceUnavailable || a.status == http.StatusConflict:
			f.retried++
			f.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			continue
		default:
			f.t.Errorf("key %s: got %s, want 201, 409 or 503", key, a.said())
		}
		f.mu.Unlock()
		return
	}
}

// run sends all duplicates of all keys, mixed in blocks, and restarts the service in every other
// block, while requests are under way.
func (f *fieldRun) run(s *fieldService) {
	type task struct {
		key       string
		duplicate int
	}
	tasks := make(chan task)
	var clients sync.WaitGroup
	for range fieldClients {
		clients.Go(func() {
			for one := range tasks {
				f.pay(f.doors[one.duplicate%len(f.doors)], one.key)
			}
		})
	}
	var restarts sync.WaitGroup
	for block := range fieldKeys / fieldBlock {
		order := rand.Perm(fieldBlock * fieldDuplicates)
		for i, n := range order {
			if i == fieldClients && block%2 == 1 {
				restarts.Wait()
				restarts.Go(func() { s.stop(block%4 == 1); s.start() })
			}
			tasks <- task{fmt.Sprint("order-", block*fieldBlock+n%fieldBlock), n / fieldBlock}
		}
	}
	close(tasks)
	restarts.Wait()
	clients.Wait()
}

// Two gateways, 200 keys with 50 duplicates each, and five restarts of the service, three of them
// kills, on each of five servers: nothing runs twice, and no answer that a service has sent becomes
// an unknown outcome, nor one that it sends before it has read the request. With -short there are
// two servers, node and Go.
func TestServicesInTheFieldRunOnceThroughRestarts(t *testing.T) {
	redis := redistest.Start(t)
	services := fieldServices
	if testing.Short() {
		services = services[3:]
	}
	for _, of := range services {
		t.Run(of.name, func(t *testing.T) {
			s := newFieldService(t, of.command)
			f := &fieldRun{t: t, paid: map[string]int{}, unknown: map[string]int{}}
			for range 2 {
				store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Prefix: strings.ReplaceAll(of.name, " ", "-") + ":", Timeout: time.Minute})
				f.doors = append(f.doors, start(t, "http://"+s.address(), largePayments, on(store), quiet))
			}
			f.early(s)
			f.run(s)
			s.stop(false) // what is under way is written down
			f.judge(s)
		})
	}
}

// early sends large bodies that the service does not read before it answers, and closes the
// connection; each to one gateway, and again to the other.
func (f *fieldRun) early(s *fieldService) {
	f.t.Helper()
	for n := range fieldEarly {
		key := fmt.Sprint("early-", n)
		for _, door := range f.doors {
			a := door.do("POST", "/payments", large, "Idempotency-Key: "+key, "X-Early: yes")
			expect.Equal(f.t, "answer to "+key+", with its body unread", strings.TrimSpace(a.said()), "402 no money")
		}
	}
	effects, _ := s.read()
	for key, times := range effects {
		expect.Equal(f.t, "effects of "+key, times, 1)
	}
	expect.Equal(f.t, "keys with an effect", len(effects), fieldEarly)
}

func (f *fieldRun) judge(s *fieldService) {
	f.t.Helper()
	effects, sent := s.read()
	unknown, lost := 0, 0
	for n := range fieldKeys {
		key := fmt.Sprint("order-", n)
		if effects[key] > 1 {
			f.t.Errorf("%s ran %d times, want once at most", key, effects[key])
		}
		expect.Equal(f.t, "final answers for "+key, f.paid[key]+f.unknown[key], fieldDuplicates)
		if f.paid[key] > 0 && effects[key] != 1 {
			f.t.Errorf("%s was answered as paid and ran %d times, want once", key, effects[key])
		}
		if f.paid[key] > 0 && f.unknown[key] > 0 {
			f.t.Errorf("%s: %d clients got its answer and %d an unknown outcome, want one of the two", key, f.paid[key], f.unknown[key])
		}
		if f.unknown[key] > 0 {
			unknown++
			if sent[key] {
				lost++
			}
		}
	}
	expect.Equal(f.t, "answers were sent, else this test says nothing", len(sent) > 0, true)
	expect.Equal(f.t, "keys whose outcome is unknown though the service has sent its answer", lost, 0)
	f.t.Logf("%d keys, %d effects, %d answers sent; of %d keys the outcome is unknown, of these the service had sent the answer of %d; %d requests were asked again",
		fieldKeys, len(effects)-fieldEarly, len(sent), unknown, lost, f.retried)
}
