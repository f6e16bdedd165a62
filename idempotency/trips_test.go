package idempotency

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// TestRoundTripsOfEachRequest counts the commands that reach Redis, on the wire. One request at a
// time has nothing to share a round trip with, so that each command is one: two for a request whose
// handler runs or that repeats a large answer, one for any other that needs the store, none for one
// that does not.
func TestRoundTripsOfEachRequest(t *testing.T) {
	space := redistest.Shared(t)
	meter := newMeter(t, strings.TrimPrefix(space.URL, "redis://"))
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: meter.url(), Prefix: space.Prefix, Timeout: time.Minute}))
	route := Route{Name: "pay", Lease: time.Hour} // no heartbeat falls into the test
	guarded := tokens.Middleware(route)(&handler{})
	held := make(chan struct{})
	begun := make(chan struct{})
	large := tokens.Middleware(route)(&handler{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }})
	slow := tokens.Middleware(route)(&handler{serve: func(http.ResponseWriter, *http.Request) { close(begun); <-held }})
	optional := tokens.Middleware(Route{Name: "pay", Optional: true})(&handler{})

	// Redis learns the scripts, and the connection is made.
	post(guarded, "a", "Idempotency-Key: warm")
	doubt := claim(t, tokens, ClientKey("", "pay", "doubtful"), ClaimOptions{Fingerprint: "any", Lease: time.Hour})
	lapsed := lapse(t, tokens, tokens.keys(ClientKey("", "pay", "doubtful"))[0])
	if lapsed != "any" || doubt.Attempt != 1 {
		t.Fatalf("the claim in doubt: got %+v of fingerprint %q, want attempt 1 of %q", doubt, lapsed, "any")
	}
	token, unused := issuedToken(t, tokens), issuedToken(t, tokens)

	var running sync.WaitGroup
	post(large, "a", "Idempotency-Key: large")
	post(large, "a", "Idempotency-Key: large")
	running.Go(func() { post(slow, "a", "Idempotency-Key: busy") })
	<-begun
	for _, row := range []struct {
		name    string
		status  int
		trips   int64
		request func() int
	}{
		{"first", 201, 2, func() int { return post(guarded, "a", "Idempotency-Key: k").Code }},
		{"replay", 201, 1, func() int { return post(guarded, "a", "Idempotency-Key: k").Code }},
		{"replay of a large answer", 200, 2, func() int { return post(large, "a", "Idempotency-Key: large").Code }},
		{"other payload", 422, 1, func() int { return post(guarded, "b", "Idempotency-Key: k").Code }},
		{"first of a token", 201, 2, func() int { return post(guarded, "a", "Idempotency-Token: "+token).Code }},
		{"replay of a token", 201, 1, func() int { return post(guarded, "a", "Idempotency-Token: "+token).Code }},
		{"unknown token", 410, 1, func() int { return post(guarded, "a", "Idempotency-Token: made-up").Code }},
		{"in progress", 409, 1, func() int { return post(guarded, "a", "Idempotency-Key: busy").Code }},
		{"in doubt", 409, 1, func() int { return doubtful(t, tokens, lapsed) }},
		{"without a header", 400, 0, func() int { return post(guarded, "a").Code }},
		{"malformed", 400, 0, func() int { return post(guarded, "a", `Idempotency-Key: "open`).Code }},
		{"passed unguarded", 201, 0, func() int { return post(optional, "a").Code }},
		{"Do, first", 201, 2, func() int { return do(t, tokens, unused) }},
		{"Do, replay", 201, 1, func() int { return do(t, tokens, unused) }},
	} {
		before := meter.commands.Load()
		status := row.request()
		if trips := meter.commands.Load() - before; trips != row.trips || status != row.status {
			t.Errorf("%s: %d round trips and status %d, want %d and %d", row.name, trips, status, row.trips, row.status)
		}
	}
	close(held)
	running.Wait()
}

func issuedToken(t *testing.T, tokens *Tokens) string {
	t.Helper()
	token, err := tokens.Issue(t.Context(), "", "", 0)
	if err != nil {
		t.Fatalf("issuing a token: %v", err)
	}
	return token.Value
}

// doubtful asks for the operation that is in doubt, and returns 409 if that is the answer.
func doubtful(t *testing.T, tokens *Tokens, fingerprint string) int {
	t.Helper()
	_, err := tokens.Claim(t.Context(), ClientKey("", "pay", "doubtful"), ClaimOptions{Fingerprint: fingerprint})
	if expect.Error(t, "Claim of the operation in doubt", err, ErrInDoubt); err == nil {
		return 0
	}
	return http.StatusConflict
}

// do runs a job under a token, and returns 201 if it has its result.
func do(t *testing.T, tokens *Tokens, token string) int {
	t.Helper()
	result, err := tokens.Do(t.Context(), IssuedToken("", token), ClaimOptions{Lease: time.Hour}, func(context.Context) ([]byte, error) { return []byte("done"), nil })
	if err != nil || string(result.Value) != "done" {
		t.Errorf("Do: got %+v and error %v, want %q", result, err, "done")
		return 0
	}
	return http.StatusCreated
}

// meter counts the commands from a store to its server. A command is counted before it is passed
// on, so that it is counted when its answer arrives.
type meter struct {
	listener net.Listener
	target   string
	commands atomic.Int64
	open     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newMeter(t *testing.T, target string) *meter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err) // names the call
	}
	m := &meter{listener: listener, target: target}
	m.open.Go(m.accept)
	t.Cleanup(m.end)
	return m
}

func (m *meter) url() string { return "redis://" + m.listener.Addr().String() }

func (m *meter) end() {
	_ = m.listener.Close()
	m.mu.Lock()
	for _, conn := range m.conns {
		_ = conn.Close()
	}
	m.mu.Unlock()
	m.open.Wait()
}

func (m *meter) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", m.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		m.mu.Lock()
		m.conns = append(m.conns, client, server)
		m.mu.Unlock()
		m.open.Go(func() { m.pass(server, client) })
		m.open.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
	}
}

// pass counts commands and passes them on, until one side has gone.
func (m *meter) pass(server io.WriteCloser, client io.Reader) {
	defer server.Close()
	from := bufio.NewReader(client)
	for {
		command, err := readCommand(from)
		if err != nil {
			return
		}
		m.commands.Add(1)
		if _, err := server.Write(command); err != nil {
			return
		}
	}
}

// readCommand reads one command as RESP writes it: a list of strings, each after its length.
func readCommand(from *bufio.Reader) ([]byte, error) {
	command, words, err := readLength(from, nil, '*')
	for range words {
		var length int
		if command, length, err = readLength(from, command, '$'); err != nil {
			break
		}
		word := make([]byte, length+len("\r\n"))
		if _, err = io.ReadFull(from, word); err != nil {
			break
		}
		command = append(command, word...)
	}
	return command, err
}

func readLength(from *bufio.Reader, command []byte, kind byte) ([]byte, int, error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return nil, 0, err
	}
	if len(line) < len("*1\r\n") || line[0] != kind {
		return nil, 0, errors.New("this is not a command")
	}
	length, err := strconv.Atoi(string(line[1 : len(line)-2]))
	return append(command, line...), length, err
}
