package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/idempotency"
)

// TestMain is the whole program where a command has started this binary again.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// command runs a command that has to succeed, and returns the table that it prints as JSON.
func command(t *testing.T, args ...string) table {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append(args, "-json"), nil, &stdout, &stderr); code != done {
		t.Fatalf("%v: exit code %d: %s", args, code, &stderr)
	}
	var result table
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v: %v in %s", args, err, &stdout)
	}
	return result
}

// cells finds the values of a column by the first cells of their rows, joined by blanks.
func (t *table) cells(tb testing.TB, column string, keys ...int) map[string]any {
	tb.Helper()
	found := map[string]any{}
	for _, row := range t.Rows {
		var name []string
		for _, key := range keys {
			name = append(name, cell(row[key]))
		}
		for i, title := range t.Columns {
			if title == column {
				found[strings.Join(name, " ")] = row[i]
			}
		}
	}
	if len(found) != len(t.Rows) {
		tb.Fatalf("column %q: %d values in %d rows", column, len(found), len(t.Rows))
	}
	return found
}

// Every server answers right, or the command fails: 201 to all, repeats marked as such and nothing
// else, and as many runs of the handler as first requests.
func TestGuardComparesEverySide(t *testing.T) {
	result := command(t, "guard", "-rounds", "1", "-seconds", "0.2", "-conns", "1,3")
	rates := result.cells(t, "requests/s", 0, 1)
	for _, want := range []string{unguarded, twoPings, onePing, coatcheck, ownReplay, byToken, byToken + " replay", rueidisAuto, leastReplay} {
		for _, conns := range []string{"1.00 ", "3.00 "} {
			if rate, _ := rates[conns+want].(float64); rate <= 0 {
				t.Errorf("%s%s: %v requests/s", conns, want, rates[conns+want])
			}
		}
	}
}

func TestGatewayComparesEverySide(t *testing.T) {
	result := command(t, "gateway", "-rounds", "1", "-seconds", "0.2", "-conns", "2")
	rates := result.cells(t, "requests/s", 1)
	for _, want := range []string{reverseProxy, gatewayOpen, gatewayGuarding, gatewayGuarding + ", replay"} {
		if rate, _ := rates[want].(float64); rate <= 0 {
			t.Errorf("%s: %v requests/s", want, rates[want])
		}
	}
}

func TestMemoryGrowsWithTheState(t *testing.T) {
	// The buffers of connections, which the server gives back when it likes, are little beside
	// 30,000 tokens.
	result := command(t, "memory", "-many", "30000")
	values := result.cells(t, "value", 0, 1)
	number := func(key string) float64 {
		value, _ := values[key].(float64)
		return value
	}
	issued, claimed, completed := number("a token issued 30000"), number("a token claimed 30000"), number("a token completed with 200 bytes 30000")
	if issued < 50 || claimed < issued+50 || completed < claimed+answerSize {
		t.Errorf("got %v bytes issued, %v claimed and %v completed, want 50 and more, 50 more than that, and %d more than that", issued, claimed, completed, answerSize)
	}
}

// The command runs where it has to, and not on a repeat, or the command fails.
func TestOnceComparesEveryWay(t *testing.T) {
	result := command(t, "once", "-rounds", "1", "-seconds", "0.01", "-old", built)
	times := result.cells(t, "value", 0, 1)
	for _, way := range []string{bareCommand, itsVersion, once, onceAgain, lockRun, once + byOld, lockRun + byOld} {
		if took, _ := times[runNothing+" "+way].(float64); took <= 0 {
			t.Errorf("%s: got %v ms, want more than 0", way, times[runNothing+" "+way])
		}
	}
}

// A generator that is content with anything measures nothing.
func TestLoadRefusesAWrongAnswer(t *testing.T) {
	answer := func(status int, replayed string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if replayed != "" {
				w.Header().Set("Idempotent-Replayed", replayed)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{}")
		}
	}
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		replay  bool
		fault   string // "" = none
	}{
		{"right", answer(201, ""), false, ""},
		{"another status", answer(200, ""), false, "instead of 201"},
		{"replayed though it is the first", answer(201, "true"), false, "replayed has to be false"},
		{"not replayed though it is a repeat", answer(201, ""), true, "replayed has to be true"},
		{"larger than the buffer", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(make([]byte, 1<<20))
		}, false, "EOF|instead of|after the answer|does not fit"},
		{"cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "EOF"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := httptest.NewServer(row.handler)
			defer server.Close()
			g := generator{addr: server.Listener.Addr().String(), conns: 2, warm: time.Millisecond, span: 200 * time.Millisecond, replay: row.replay}
			result, err := g.run(t.Context(), func() {})
			switch {
			case row.fault == "" && (err != nil || result.Sent == 0):
				t.Errorf("got %+v and error %v, want requests that were answered", result, err)
			case row.fault != "" && (err == nil || !containsAny(err.Error(), row.fault)):
				t.Errorf("got %v, want %s", err, row.fault)
			}
		})
	}
}

// A token is used once, and a server that has issued too few is not asked for more.
func TestLoadUsesEachTokenOnce(t *testing.T) {
	seen := map[string]int{}
	var all sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		all.Lock()
		seen[r.Header.Get(idempotency.TokenHeader)]++
		all.Unlock()
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	g := generator{addr: server.Listener.Addr().String(), conns: 2, warm: time.Millisecond, span: 200 * time.Millisecond, tokens: []string{"one", "two", "six"}}
	if _, err := g.run(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "all 3 tokens are used") {
		t.Errorf("got error %v, want that all tokens are used", err)
	}
	if want := map[string]int{"one": 1, "two": 1, "six": 1}; !maps.Equal(seen, want) {
		t.Errorf("tokens that were used: got %v, want %v", seen, want)
	}
}

func containsAny(text, alternatives string) bool {
	for word := range strings.SplitSeq(alternatives, "|") {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// A server that runs its handler for repeats, or not at all, is found by the count of runs.
func TestContestCountsTheRunsOfTheHandler(t *testing.T) {
	// The unguarded server, taken for one that guards: its repeats run again.
	sides := []side{{name: unguarded, args: []string{"serve", "-shape", unguarded}, replay: true, plain: true}}
	c, err := newContest(t.Context(), unguarded, sides, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := c.measure(t.Context(), 0, 2); err == nil || !strings.Contains(err.Error(), "the handler ran") {
		t.Errorf("got %v", err)
	}
}

func TestCommandLinesThatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{
		{}, {"unknown"}, {"guard", "-unknown"}, {"guard", "more"}, {"guard", "-conns", "0"}, {"guard", "-conns", "1,x"}, {"guard", "-rounds", "0"},
		{"guard", "-seconds", "0"}, {"gateway", "-conns", ""}, {"serve", "-shape", "unknown"}, {"proxy", "-way", "unknown", "-upstream", "http://127.0.0.1:1"},
		{"memory", "-many", "3"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != usage || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}
