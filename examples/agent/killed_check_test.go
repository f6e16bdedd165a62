//go:build check

package agent_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// kills is how many servers are killed: go test -tags=check -run Killed -kills 100.
var kills = flag.Int("kills", 10, "how many servers are killed in the midst of a call")

// shop is a service on a Redis, and a ledger.
type shop struct {
	t         *testing.T
	coatcheck string // the program
	url       string
	folder    string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, folder: t.TempDir()}
	s.coatcheck = filepath.Join(s.folder, "coatcheck")
	if out, err := exec.Command("go", "build", "-o", s.coatcheck, "../../cmd/coatcheck").CombinedOutput(); err != nil {
		t.Fatalf("building coatcheck: %v\n%s", err, out)
	}
	s.install()
	cmd := exec.Command(s.coatcheck, "serve", "--json", "--listen", "127.0.0.1:0", "--access-log", "none", "--redis", redistest.Start(t).URL())
	log := &logtest.Text{}
	cmd.Stderr = log
	lines := s.start(cmd)
	var banner struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(lines.next(t), &banner); err != nil {
		t.Fatalf("no banner: %v\n%s", err, log)
	}
	s.url = banner.URL
	return s
}

// install puts the program where the client is, as npm install does.
func (s *shop) install() {
	s.t.Helper()
	client, err := filepath.Abs("../../clients/node")
	if err == nil {
		err = os.Mkdir(filepath.Join(s.folder, "node_modules"), 0o700)
	}
	if err == nil {
		err = os.Symlink(client, filepath.Join(s.folder, "node_modules", "coatcheck"))
	}
	for _, name := range []string{"server.mjs", "charges.mjs", "package.json"} {
		var text []byte
		if err == nil {
			text, err = os.ReadFile(name)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(s.folder, name), text, 0o600)
		}
	}
	expect.NoError(s.t, "the run of the agent", err)
}

// lines are those that a process prints.
type lines struct {
	*proctest.Process

	text chan []byte // closed at its end
}

// start starts a process, which ends with the test.
func (s *shop) start(cmd *exec.Cmd) lines {
	s.t.Helper()
	read, write := io.Pipe()
	cmd.Stdout = write
	process, err := proctest.Start(cmd, syscall.SIGKILL)
	expect.NoError(s.t, "the start of the agent", err)
	s.t.Cleanup(process.Kill)
	l := lines{process, make(chan []byte, 100)}
	go func() {
		<-process.Done()
		_ = write.Close()
	}()
	go func() {
		defer close(l.text)
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			l.text <- bytes.Clone(scanner.Bytes())
		}
	}()
	return l
}

func (l lines) next(t *testing.T) []byte {
	t.Helper()
	select {
	case line := <-l.text:
		return line
	case <-time.After(time.Minute):
		t.Fatal("a process printed nothing for a minute")
		return nil
	}
}

// server is a running MCP server, as its host has started it.
type server struct {
	*proctest.Process

	t      *testing.T
	stdin  io.WriteCloser
	stderr *logtest.Text

	mu      sync.Mutex
	asked   int
	waiting map[int]chan reply // closed when the server has ended
}

// reply is an answer of the server's.
type reply struct {
	ID     *int            `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int `json:"code"`
	} `json:"error"`
}

// serve starts a server for a run of the agent, and says hello.
func (s *shop) serve(run string) *server {
	s.t.Helper()
	read, write, err := os.Pipe() // for one of another kind Wait would wait
	expect.NoError(s.t, "a pipe for its output", err)
	srv := &server{t: s.t, stdin: write, stderr: &logtest.Text{}, waiting: map[int]chan reply{}}
	cmd := exec.Command("node", "server.mjs")
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "AGENT_RUN="+run, "COATCHECK_SERVER="+s.url, "LEASE_SECONDS=1")
	cmd.Stdin, cmd.Stderr = read, srv.stderr
	l := s.start(cmd)
	_ = read.Close() // the process has it
	srv.Process = l.Process
	go srv.deliver(l.text)
	hello := srv.call("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}})
	expect.Contains(s.t, "initialize", string((<-hello).Result), `"protocolVersion":"2025-06-18"`, `"tools":{}`)
	srv.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return srv
}

// deliver gives each answer to its call.
func (s *server) deliver(text chan []byte) {
	for line := range text {
		var got reply
		if err := json.Unmarshal(line, &got); err != nil {
			s.t.Errorf("the server printed %s: %v", line, err)
		}
		s.mu.Lock()
		id := 0 // of an answer to what was no request
		if got.ID != nil {
			id = *got.ID
		}
		if waiting := s.waiting[id]; waiting != nil {
			waiting <- got
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiting := range s.waiting {
		close(waiting)
	}
	s.waiting = nil
}

// write writes a line to the server, which may have ended.
func (s *server) write(line string) { _, _ = io.WriteString(s.stdin, line+"\n") }

// expectReply is the channel of the answer to a request with an id.
func (s *server) expectReply(id int) chan reply {
	answered := make(chan reply, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		close(answered)
	} else {
		s.waiting[id] = answered
	}
	return answered
}

// call sends a request. The channel is closed without an answer when the server ends.
func (s *server) call(method string, params any) <-chan reply {
	s.mu.Lock()
	s.asked++
	id := s.asked
	s.mu.Unlock()
	answered := s.expectReply(id)
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		s.t.Errorf("a request of the test's: %v", err)
	}
	s.write(string(line))
	return answered
}

// outcome is the result of a charge.
type outcome struct {
	IsError bool `json:"isError"` //nolint:tagliatelle // the protocol's
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Facts struct {
		Operation string `json:"operation"`
		Payment   string `json:"payment"`
	} `json:"structuredContent"` //nolint:tagliatelle // likewise
}

func (s *server) charge(order string, cents any) <-chan reply {
	return s.call("tools/call", map[string]any{"name": "charge", "arguments": map[string]any{"order": order, "cents": cents}})
}

// result reads the result of a charge that was answered.
func (s *server) result(answered <-chan reply) (got outcome) {
	s.t.Helper()
	select {
	case reply := <-answered:
		if err := json.Unmarshal(reply.Result, &got); err != nil || len(got.Content) != 1 {
			s.t.Fatalf("a charge was answered with %s, error %+v: %v\n%s", reply.Result, reply.Error, err, s.stderr)
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("a charge has no answer after a minute\n%s", s.stderr)
	}
	return got
}

// ledger is how often each order was charged, and the operations that were.
func (s *shop) ledger() (orders map[string]int, operations map[string]bool) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.folder, "ledger.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatalf("the ledger is read: %v", err)
	}
	orders, operations = map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var charge struct {
			Order     string `json:"order"`
			Operation string `json:"operation"`
		}
		if err := json.Unmarshal([]byte(line), &charge); err != nil {
			s.t.Fatalf("a line of the ledger is %q: %v", line, err)
		}
		orders[charge.Order]++
		operations[charge.Operation] = true
	}
	return orders, operations
}

// settle does what the README says about an operation in doubt.
func (s *shop) settle(operation string) (happened bool) {
	s.t.Helper()
	_, charged := s.ledger()
	how := map[bool]string{true: "--completed", false: "--not-begun"}[charged[operation]]
	out, err := exec.Command(s.coatcheck, "operation", "settle", operation, how, "--server", s.url).CombinedOutput()
	if err != nil {
		s.t.Fatalf("coatcheck operation settle %s %s: %v\n%s", operation, how, err, out)
	}
	return charged[operation]
}

// await waits until a random moment of a charge, half of the times one near its effect.
func (s *shop) await(order string) {
	if rand.IntN(2) == 0 {
		time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond)
		return
	}
	ledger := filepath.Join(s.folder, "ledger.jsonl")
	for text := []byte(nil); !bytes.Contains(text, []byte(`"`+order+`"`)); {
		text, _ = os.ReadFile(ledger) // there may be none
		time.Sleep(100 * time.Microsecond)
	}
	time.Sleep(time.Duration(rand.IntN(4_000)) * time.Microsecond)
}

// Two servers of one run are asked for the same charge, and one is killed at a random moment. No
// order is charged twice, and after the settlement each was charged.
func TestKilledServersChargeNothingTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	survivor := s.serve("run-1")
	happened, not, died := 0, 0, 0
	for i := range *kills {
		order := fmt.Sprintf("order-%d", i)
		doomed := s.serve("run-1")
		first := doomed.charge(order, 1299)
		var again <-chan reply
		if rand.IntN(2) == 0 {
			again = survivor.charge(order, 1299)
		}
		s.await(order)
		doomed.Kill()
		if _, answered := <-first; !answered {
			died++
		}
		if again == nil {
			again = survivor.charge(order, 1299)
		}
		got := survivor.result(again)
		if got.IsError && got.Facts.Operation != "" {
			if s.settle(got.Facts.Operation) {
				happened++
			} else {
				not++
			}
			got = survivor.result(survivor.charge(order, 1299))
		}
		expect.Equal(t, "whether the last call of "+order+" failed: "+got.Content[0].Text, got.IsError, false)
		orders, _ := s.ledger()
		expect.Equal(t, "charges of "+order, orders[order], 1)
	}
	t.Logf("%d kills, %d before the answer; %d in doubt: %d had been charged, %d had not", *kills, died, happened+not, happened, not)
}

// Calls at once and later, of one server and of another of the same run, get one payment.
func TestOneChargeHoweverOftenItIsCalled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	one, other := s.serve("run-1"), s.serve("run-1")
	var calls []<-chan reply
	for range 5 {
		calls = append(calls, one.charge("42", 1299), other.charge("42", 1299.0))
	}
	payments := map[string]bool{}
	for _, call := range append(calls, one.charge("42", 1299)) {
		payments[one.result(call).Facts.Payment] = true
	}
	orders, _ := s.ledger()
	expect.Equal(t, "payments", len(payments), 1)
	expect.Equal(t, "charges", orders, map[string]int{"42": 1})
	// what is another charge
	one.result(one.charge("43", 1299))
	one.result(one.charge("42", 1300))
	next := s.serve("run-2")
	next.result(next.charge("42", 1299))
	orders, _ = s.ledger()
	expect.Equal(t, "charges", orders, map[string]int{"42": 3, "43": 1})
}

func TestServerSpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	srv := s.serve("run-1")
	expect.Contains(t, "an unknown version", string((<-srv.call("initialize", map[string]any{"protocolVersion": "1999-01-01"})).Result), `"protocolVersion":"2025-11-25"`)
	expect.Equal(t, "ping", string((<-srv.call("ping", nil)).Result), "{}")
	expect.Contains(t, "tools/list", string((<-srv.call("tools/list", nil)).Result), `"name":"charge"`, `"inputSchema":{"type":"object"`)
	for method, want := range map[string]int{"resources/list": -32601, "toString": -32601} {
		expect.Equal(t, "error of "+method, (<-srv.call(method, nil)).Error.Code, want)
	}
	expect.Equal(t, "error of another tool", (<-srv.call("tools/call", map[string]any{"name": "refund"})).Error.Code, -32602)
	expect.Equal(t, "error of no parameters", (<-srv.call("tools/call", nil)).Error.Code, -32602)
	for line, want := range map[string]int{`{`: -32700, `[]`: -32600, `null`: -32600, `{"jsonrpc":"2.0","id":{},"method":"ping"}`: -32600, `{"id":0,"method":"ping"}`: -32600} {
		answered := srv.expectReply(0)
		srv.write(line)
		expect.Equal(t, "error of "+line, (<-answered).Error.Code, want)
	}
	for _, cents := range []any{0, -1, 1.5, "1299", nil, 1e300} {
		got := srv.result(srv.charge("42", cents))
		expect.Contains(t, fmt.Sprintf("a charge of %v", cents), got.Content[0].Text, "Nothing was charged")
		expect.Equal(t, "isError", got.IsError, true)
	}
	orders, _ := s.ledger()
	expect.Equal(t, "charges", len(orders), 0)
	last := srv.charge("42", 1299)
	srv.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	_ = srv.stdin.Close()
	expect.Equal(t, "whether a charge that is under way when stdin ends failed", srv.result(last).IsError, false)
	expect.Equal(t, "error of a server whose stdin has ended", srv.Err(), nil)
}

// Without the service nothing is charged, and the model is told so.
func TestNothingIsChargedWithoutTheService(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.url = "http://127.0.0.1:1"
	srv := s.serve("run-1")
	got := srv.result(srv.charge("42", 1299))
	expect.Equal(t, "isError", got.IsError, true)
	expect.Contains(t, "what it says", got.Content[0].Text, "was not charged", "Call again later")
	orders, _ := s.ledger()
	expect.Equal(t, "charges", len(orders), 0)
}
