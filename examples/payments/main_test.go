package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// asProgram makes the test binary behave as one of programs, so that a test can start it as a
// process of its own, pause it and kill it.
const asProgram = "PAYMENTS_TEST_AS_PROGRAM"

var programs = map[string]func(context.Context) int{
	"payments": func(ctx context.Context) int {
		return (&program{stdout: os.Stdout, at: gateFromEnv()}).run(ctx, os.Args[1:], os.Stderr)
	},
	"matrix": runMatrix,
}

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if run := programs[os.Getenv(asProgram)]; run != nil {
		os.Exit(run(ctx))
	}
	stop()
	goleak.VerifyTestMain(m)
}

// inProcess is a service on a Redis and a file that others may use as well. What it does in the
// background ends with the test.
func inProcess(t testing.TB, redis, file string) *service {
	t.Helper()
	store, err := redisstore.Open(t.Context(), redis)
	expect.NoError(t, "the store is opened", err)
	book, err := openLedger(t.Context(), file, func(step) {})
	expect.NoError(t, "the ledger is opened", err)
	s := newService(store, book, time.Hour, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.tokens.Close(now); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the tokens are closed: %v", err)
		}
		if err := errors.Join(store.Close(), book.close()); err != nil {
			t.Errorf("the store and the ledger are closed: %v", err)
		}
	})
	return s
}

// embedded is a service on a Redis and a ledger of its own.
func embedded(t testing.TB) *service {
	t.Helper()
	return inProcess(t, "embedded:", newFile(t))
}

func onRedis(t testing.TB) (*redistest.Server, *service) {
	t.Helper()
	redis := redistest.Start(t)
	return redis, inProcess(t, redis.URL(), newFile(t))
}

// fileOf is where a service keeps its ledger.
func fileOf(t testing.TB, s *service) (file string) {
	t.Helper()
	expect.NoError(t, "the file of the ledger", s.ledger.db.QueryRow("SELECT file FROM pragma_database_list").Scan(&file))
	return file
}

func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

// ask sends a request to a service in this process, with headers given as "Name: value".
func (s *service) ask(method, target, body string, headers ...string) answer {
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, request)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func (s *service) balances(t testing.TB) map[string]int64 {
	t.Helper()
	return balancesIn(t, s.ledger)
}

// balancesIn reads all accounts, and checks the books: the sum is what the accounts were opened
// with and what was paid in since.
func balancesIn(t testing.TB, l *ledger) map[string]int64 {
	t.Helper()
	list, err := l.accounts(context.Background())
	expect.NoError(t, "the accounts are listed", err)
	var paid int64
	expect.NoError(t, "the sum of the payments", l.db.QueryRow("SELECT coalesce(sum(amount), 0) FROM payments").Scan(&paid))
	if list.Sum != opened+paid {
		t.Errorf("the accounts hold %d; they were opened with %d, and %d was paid in", list.Sum, opened, paid)
	}
	balances := map[string]int64{}
	for _, a := range list.Accounts {
		balances[a.ID] = a.Balance
	}
	return balances
}

const (
	opened   = 30_000 // what alice, bob and carol have at the beginning, together
	payOrder = `{"amount":1299,"to":"alice","reference":"order-1"}`
	moveBob  = `{"from":"alice","to":"bob","amount":500}`
)

func (s *service) rows(t testing.TB, table string) int { t.Helper(); return rowsIn(t, s.ledger, table) }

func rowsIn(t testing.TB, l *ledger, table string) int {
	t.Helper()
	var n int
	expect.NoError(t, "the rows of "+table, l.db.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// reader opens a ledger to look at what processes have written.
func reader(t testing.TB, file string) *ledger {
	t.Helper()
	l, err := openLedger(t.Context(), file, func(step) {})
	expect.NoError(t, "the ledger is opened again", err)
	t.Cleanup(func() { _ = l.close() })
	return l
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// want fails the test unless an answer has a status and is that problem, "" if it is to be none.
func (a answer) want(t testing.TB, asked string, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("%s: got %d %q, want %d %q; the body is %s", asked, a.status, a.code(), status, code, a.body)
	}
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// gateFromEnv returns a hook for a process whose test has named a step and a file: at that step it
// says so on standard error and waits for as long as the file is there.
func gateFromEnv() func(step) {
	return gate(step(os.Getenv(gateStep)), os.Getenv(gateFile), os.Stderr)
}

const (
	gateStep = "PAYMENTS_TEST_GATE_STEP"
	gateFile = "PAYMENTS_TEST_GATE_FILE"
)

func gate(closed step, file string, log io.Writer) func(step) {
	return func(now step) {
		if now != closed {
			return
		}
		_, _ = io.WriteString(log, "waiting at "+string(now)+"\n")
		for {
			if _, err := os.Stat(file); err != nil {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}
