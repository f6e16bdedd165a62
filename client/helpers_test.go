package client_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// patience is how long a request may take, and a command of a store. Only a hang takes that long.
const patience = time.Minute

func TestMain(m *testing.M) {
	// a store that is away is what some of these tests are about
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// service is a coatcheck service with a proxy in front that a test can disturb.
type service struct {
	*client.Client

	url   string
	store *redisstore.Store
	proxy *proxy
	wires http.RoundTripper // to the service, in a bubble
}

// serve starts a service on a store, and a client of it; both end with the test.
func serve(t testing.TB, store *redisstore.Store) *service {
	t.Helper()
	return serveWith(t, server.Config{Store: store, Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
}

func serveWith(t testing.TB, config server.Config) *service {
	t.Helper()
	one := server.New(config)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // what still waits for a store that is away need not come to its end
		if err := one.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the service: %v", err)
		}
	})
	l := &proxy{service: apitest.Handler(t, one.Handler()), seen: map[string]int{}}
	url := listen(t, l)
	return &service{Client: connect(t, url), url: url, store: config.Store, proxy: l}
}

func embedded(t testing.TB) *service {
	t.Helper()
	return serve(t, open(t, "embedded:"))
}

// open opens a store whose commands may take as long as any request.
func open(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	return storetest.Open(t, redisstore.Config{URL: url, Timeout: patience})
}

// listen serves a handler until the test ends, and returns its URL.
func listen(t testing.TB, handler http.Handler) string {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return web.URL
}

// connect returns a client whose requests may take as long as any test waits.
func connect(t testing.TB, url string, change ...func(*client.Config)) *client.Client {
	t.Helper()
	config := client.Config{URL: url, Timeout: patience}
	for _, with := range change {
		with(&config)
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatalf("making a client of %q: %v", url, err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// fault is what a proxy does to one request; done is false for one that it leaves alone.
type fault func(w http.ResponseWriter, r *http.Request, service http.Handler) (done bool)

// proxy stands between client and service, counts requests by verb and disturbs those that a test
// asks for.
type proxy struct {
	service http.Handler

	mu    sync.Mutex
	seen  map[string]int
	fault fault
}

func (l *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.seen[verb(r)]++
	disturb := l.fault
	l.mu.Unlock()
	if disturb == nil || !disturb(w, r, l.service) {
		l.service.ServeHTTP(w, r)
	}
}

func (l *proxy) disturb(with fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = with
}

// count is how many requests of a verb came.
func (l *proxy) count(verb string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[verb]
}

// verb is the last word of a token's path, issue or status; of worker ids it is a word of its own.
func verb(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "worker":
		return map[string]string{"POST": "acquire", "PUT": "renew", "DELETE": "give back", "GET": "look"}[r.Method]
	case len(parts) == 1:
		return "issue"
	case len(parts) == 2:
		return "status"
	}
	return parts[2]
}

// only limits a fault to requests of one verb, and to so many of them; 0 = all.
func only(name string, times int, with fault) fault {
	var mu sync.Mutex
	left := times
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		if verb(r) != name {
			return false
		}
		mu.Lock()
		ended := times > 0 && left <= 0
		left--
		mu.Unlock()
		return !ended && with(w, r, service)
	}
}

// loseReply serves a request and closes the connection instead of answering.
func loseReply(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
	service.ServeHTTP(httptest.NewRecorder(), r)
	return hangUp(w, r, service)
}

// hangUp closes the connection instead of serving.
func hangUp(_ http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
	panic(http.ErrAbortHandler)
}

// says answers in the service's place.
func says(status int, media, body string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

func issue(t testing.TB, c *client.Client) string {
	t.Helper()
	token, err := c.Issue(t.Context(), "", 0)
	if err != nil {
		t.Fatalf("Issue: %v", err)
	}
	return token.Value
}

func claim(t testing.TB, c *client.Client, token string, terms client.ClaimOptions) client.Grant {
	t.Helper()
	outcome, err := c.Claim(t.Context(), token, terms)
	if err != nil || !outcome.Granted {
		t.Fatalf("Claim with %+v: got %+v, %v, want it granted", terms, outcome, err)
	}
	return outcome.Grant
}

func state(t testing.TB, c *client.Client, token string) api.State {
	t.Helper()
	status, err := c.Status(t.Context(), token)
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	return status.State
}

// wantError fails the test unless the error is as wanted, of exactly one class, and an *Error. What
// the call was about, such as `key` and its value, goes before the error.
func wantError(t testing.TB, err, want error, about ...any) *client.Error {
	t.Helper()
	asked := "the call"
	for i := 1; i < len(about); i += 2 {
		asked += fmt.Sprintf(", with %v %+v", about[i-1], about[i])
	}
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", asked, err, want)
	}
	failure, ok := errors.AsType[*client.Error](err)
	if classes := classesOf(err); classes != 1 || !ok {
		t.Fatalf("%s: the error %v is of %d classes, want 1; an *Error: got %t, want true", asked, err, classes, ok)
	}
	return failure
}

// ofWork is the error of the function that Do ran.
func ofWork(t testing.TB, err error) error {
	t.Helper()
	work, ok := errors.AsType[*client.WorkError](err)
	if !ok {
		t.Fatalf("Do: got error %v, want one of the function", err)
	}
	return work.Err
}

func classesOf(err error) (n int) {
	for _, class := range []error{client.ErrRefused, client.ErrLost, client.ErrUnknownOutcome} {
		if errors.Is(err, class) {
			n++
		}
	}
	return n
}

// answering is a client of a service that answers every request with this JSON.
func answering(t testing.TB, status int, body string) *client.Client {
	t.Helper()
	return faced(t, says(status, "application/json", body))
}

// faced is a client whose every request meets a fault.
func faced(t testing.TB, with fault, change ...func(*client.Config)) *client.Client {
	t.Helper()
	return connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { with(w, r, nil) })), change...)
}

// succeeds fails the test if what was asked failed.
func succeeds(t testing.TB, asked string, err error) {
	t.Helper()
	expect.Error(t, asked, err, nil)
}

// between fails the test unless low <= got <= high.
func between[T cmp.Ordered](t testing.TB, asked string, got, low, high T) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: got %v, want %v to %v", asked, got, low, high)
	}
}

// after fails the test unless a moment comes after another.
func after(t testing.TB, asked string, got, than time.Time) {
	t.Helper()
	if !got.After(than) {
		t.Errorf("%s: got %v, want a moment after %v", asked, got, than)
	}
}

// without fails the test for each secret that stands in a text.
func without(t testing.TB, asked, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s: %q stands in %q", asked, secret, text)
		}
	}
}

// must ends the test if what was asked failed.
func must(t testing.TB, asked string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s failed: %v", asked, err)
	}
}

// transport is one of the test's own.
func transport(t testing.TB) *http.Transport {
	t.Helper()
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	return own
}

// discard reads a request's body, without which net/http does not see that the client has gone.
func discard(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// readJSON reads a request's body, and leaves it there.
func readJSON(t testing.TB, r *http.Request) (message map[string]any) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	if err != nil {
		t.Errorf("%s %s: body %q: %v", r.Method, r.URL, body, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return message
}
