package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/leftover"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// patience is how long a test waits for what must come, and how long a call may take that must end;
// only a hang takes that long.
const patience = 2 * time.Minute

// TestMain runs the package's tests and then looks for goroutines that outlive them.
func TestMain(m *testing.M) {
	if os.Getenv(plainProgram) != "" {
		openWithoutALogger()
		return
	}
	flag.Parse()
	storetest.AllRights = true
	redisstore.LogTo(slog.New(&messages)) // once and before all stores, as a program does
	code := m.Run()
	if messages.again.Load() { // it takes from 0.4 to 1.7 seconds to be told that a server is down
		fmt.Fprintln(os.Stderr, "go-redis dialed again by itself")
		code = 1
	}
	if code == 0 {
		if err := leftover.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// messages counts what go-redis says, and watches what it says of dials.
var messages messageCounter

type messageCounter struct {
	records atomic.Int64
	again   atomic.Bool // a dial was tried more than once before the call was told
}

var dials = regexp.MustCompile(`failed to dial after (\d+) attempts`)

func (*messageCounter) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelDebug
}
func (c *messageCounter) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *messageCounter) WithGroup(string) slog.Handler      { return c }

func (c *messageCounter) Handle(_ context.Context, record slog.Record) error {
	if record.Message == "go-redis" && record.NumAttrs() == 1 {
		c.records.Add(1)
		record.Attrs(func(text slog.Attr) bool {
			if found := dials.FindStringSubmatch(text.Value.String()); found != nil && found[1] != "1" {
				c.again.Store(true)
			}
			return true
		})
	}
	return nil
}

// open opens a store whose calls may take longer than any test waits: a slow machine decides
// nothing, and a call that should end by its context is seen not to. change, if not nil, changes
// its configuration.
func open(t testing.TB, url string, change func(*redisstore.Config)) *redisstore.Store {
	t.Helper()
	config := redisstore.Config{URL: url, Timeout: time.Minute}
	if change != nil {
		change(&config)
	}
	return storetest.Open(t, config)
}

// script makes a script for a test.
func script(name, source string, reads bool) *scripts.Script {
	if reads {
		source = "\n-- Effect none\n" + source
	}
	return scripts.New(name, source)
}

// bump adds one to a key: the smallest script that must not run twice.
var bump = script("bump", "return {'ok', tostring(redis.call('INCR', KEYS[1]))}", false)

// peek reads a key.
var peek = script("peek", "return {'ok', redis.call('GET', KEYS[1]) or '0'}", true)

func number(ctx context.Context, store *redisstore.Store, script *scripts.Script, name string) (int64, error) {
	reply, err := onstore.Run(ctx, store, script, []string{onstore.Key(store, "test", name)})
	if err != nil {
		return 0, err
	}
	var n int64
	return n, reply.Scan(&n)
}

// bumped adds one to a record and returns the sum.
func bumped(ctx context.Context, store *redisstore.Store, name string) (int64, error) {
	return number(ctx, store, bump, name)
}

// mustBump adds one to a record and fails the test unless the sum is as wanted.
func mustBump(t testing.TB, store *redisstore.Store, name string, want int64) {
	t.Helper()
	if n, err := bumped(t.Context(), store, name); err != nil || n != want {
		t.Fatalf("got %d, %v, want %d", n, err, want)
	}
}

// counted is what a record holds.
func counted(t testing.TB, store *redisstore.Store, name string) int64 {
	t.Helper()
	n, err := number(t.Context(), store, peek, name)
	expect.NoError(t, "reading a record", err)
	return n
}

// warm lets a store open as many connections as it can, and know the scripts.
func warm(t testing.TB, store *redisstore.Store, calls int) {
	t.Helper()
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			_, bumpErr := bumped(t.Context(), store, "warm")
			_, peekErr := number(t.Context(), store, peek, "warm")
			expect.Error(t, "a call to warm the store", errors.Join(bumpErr, peekErr), nil)
		})
	}
	all.Wait()
}

// refused fails the test unless the error says that nothing happened, and why.
func refused(t testing.TB, err error, causes ...error) {
	t.Helper()
	if !errors.Is(err, redisstore.ErrUnavailable) || !errors.Is(err, redisstore.ErrRefused) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Fatalf("got %v, want %v", err, redisstore.ErrUnavailable)
	}
	hasCauses(t, err, causes)
}

// unknown fails the test unless the error says that the outcome is unknown, and why.
func unknown(t testing.TB, err error, causes ...error) {
	t.Helper()
	if !errors.Is(err, redisstore.ErrUnknownOutcome) || errors.Is(err, redisstore.ErrRefused) {
		t.Fatalf("got %v, want %v", err, redisstore.ErrUnknownOutcome)
	}
	hasCauses(t, err, causes)
}

func hasCauses(t testing.TB, err error, causes []error) {
	t.Helper()
	for _, cause := range causes {
		if !errors.Is(err, cause) {
			t.Fatalf("%v is not %v", err, cause)
		}
	}
}

// inClass fails the test unless the error is of one of the classes that a failed write can have.
func inClass(t testing.TB, err error) {
	t.Helper()
	if refused := errors.Is(err, redisstore.ErrUnavailable); refused == errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("%v is of no class, or of two", err)
	}
}

// soon fails the test if a call takes so long that it must have hung.
func soon(t testing.TB, call func()) {
	t.Helper()
	start := time.Now()
	call()
	// less than the longest timeout of a store
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("a call that should end at once took %v", took)
	}
}

// history is what many callers of one counter were told.
type history struct {
	mu     sync.Mutex
	values []int64
}

func (h *history) add(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values = append(h.values, n)
}

// unique fails the test if a value was handed out twice, and returns how many there are and the
// largest.
func (h *history) unique(t testing.TB) (count int, largest int64) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.values)
	for i := 1; i < len(h.values); i++ {
		if h.values[i] == h.values[i-1] {
			t.Errorf("the value %d was handed out twice", h.values[i])
		}
	}
	if len(h.values) == 0 {
		return 0, 0
	}
	return len(h.values), h.values[len(h.values)-1]
}
