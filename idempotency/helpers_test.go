package idempotency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/recordtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// newTokens returns the tokens of a store; what they do in the background ends with the test.
func newTokens(t testing.TB, store *redisstore.Store) *Tokens {
	t.Helper()
	return newTokensWith(t, store, Config{})
}

func newTokensWith(t testing.TB, store *redisstore.Store, config Config) *Tokens {
	t.Helper()
	tokens := New(store, config)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := tokens.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the tokens: %v", err)
		}
	})
	return tokens
}

func embeddedTokens(t testing.TB) *Tokens {
	t.Helper()
	return newTokens(t, storetest.Open(t, redisstore.Config{}))
}

func issue(t testing.TB, tokens *Tokens, scope string) Key {
	t.Helper()
	token, err := tokens.Issue(t.Context(), "", scope, 0)
	expect.NoError(t, "issuing a token", err)
	return IssuedToken("", token.Value)
}

func claim(t testing.TB, tokens *Tokens, key Key, options ClaimOptions) Grant {
	t.Helper()
	outcome, err := tokens.Claim(t.Context(), key, options)
	if err != nil || !outcome.Granted {
		t.Fatalf("Claim: got %+v and error %v, want a grant", outcome, err)
	}
	return outcome.Grant
}

// forgotten is the state of a token that is not known.
const forgotten State = ""

func wantState(t testing.TB, tokens *Tokens, key Key, want State) {
	t.Helper()
	status, err := tokens.Status(t.Context(), key)
	if errors.Is(err, ErrUnknownToken) {
		err = nil
	}
	expect.NoError(t, "Status", err)
	expect.MustEqual(t, "state of the token", status.State, want)
}

// handler is a guarded handler that counts its runs.
type handler struct {
	runs  atomic.Int64
	serve http.HandlerFunc
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.runs.Add(1)
	if h.serve != nil {
		h.serve(w, r)
		return
	}
	w.Header().Set("Location", "/payments/1")
	w.Header().Set("Set-Cookie", "session=secret")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":1}`)
}

func (h *handler) wantRuns(t testing.TB, times int64) {
	t.Helper()
	expect.Equal(t, "runs of the handler", h.runs.Load(), times)
}

// statusAndBody is an answer's status and body.
func statusAndBody(w *httptest.ResponseRecorder) string { return fmt.Sprintf("%d %s", w.Code, w.Body) }

// wantStatus wants a status, and shows the body of an answer that has another.
func wantStatus(t testing.TB, asked string, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Errorf("%s: got %.500q, want %d", asked, statusAndBody(w), status)
	}
}

// wantCode wants a refusal with a code, and with the code's status.
func wantCode(t testing.TB, asked string, w *httptest.ResponseRecorder, code api.Code) {
	t.Helper()
	if kind, _ := api.Lookup(code); codeOf(w) != code || w.Code != kind.Status {
		t.Errorf("%s: got %.500q, want %d and a problem of code %s", asked, statusAndBody(w), kind.Status, code)
	}
}

func wantHeader(t testing.TB, asked string, w *httptest.ResponseRecorder, name, value string) {
	t.Helper()
	expect.Equal(t, asked+": header "+name, w.Header().Get(name), value)
}

func wantReplayed(t testing.TB, asked string, w *httptest.ResponseRecorder, replayed bool) {
	t.Helper()
	wantHeader(t, asked, w, "Idempotent-Replayed", map[bool]string{true: "true"}[replayed])
}

// post sends one request with headers given as "Name: value" to a guarded handler.
func post(guarded http.Handler, body string, headers ...string) *httptest.ResponseRecorder {
	return serve(guarded, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body)), headers...)
}

// serve is the answer of a handler to a request with more headers, given as "Name: value".
func serve(h http.Handler, request *http.Request, headers ...string) *httptest.ResponseRecorder {
	addHeaders(request, headers)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w
}

func addHeaders(request *http.Request, headers []string) {
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
}

// runScript runs a line of Lua on a token's record, unknown to its owner.
func runScript(t testing.TB, tokens *Tokens, key, lua string, args ...any) string {
	t.Helper()
	// not known: the store sends the source
	script := scripts.New("test", lua)
	reply, err := onstore.Run(t.Context(), tokens.store, script, []string{key}, args...)
	expect.NoError(t, fmt.Sprintf("running %q", lua), err)
	return reply.Word()
}

// lapse ends a claim's lease, and returns its fingerprint.
func lapse(t testing.TB, tokens *Tokens, key string) string {
	t.Helper()
	setWord(t, tokens, key, "until", "1")
	return recordtest.Words(record(t, tokens, key))["fingerprint"]
}

// record is the record under a key of Redis, "" if there is none.
func record(t testing.TB, tokens *Tokens, key string) string {
	t.Helper()
	return runScript(t, tokens, key, "return {redis.call('GET', KEYS[1]) or ''}")
}

// setWord changes a word of a record.
func setWord(t testing.TB, tokens *Tokens, key, name, word string) {
	t.Helper()
	changed := recordtest.With(record(t, tokens, key), name, word)
	runScript(t, tokens, key, "return {redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL').ok}", changed)
}

// forget removes a token's record, as a flush or an eviction does.
func forget(t testing.TB, tokens *Tokens, key Key) {
	t.Helper()
	runScript(t, tokens, tokens.keys(key)[0], "return {redis.call('DEL', KEYS[1])}")
}

// field reads a word of an operation's record, or its answer.
func field(t testing.TB, tokens *Tokens, key Key, name string) string {
	t.Helper()
	return recordtest.Words(record(t, tokens, tokens.keys(key)[0]))[name]
}

// newSilentTokens returns tokens whose store has gone away.
func newSilentTokens(t testing.TB) *Tokens {
	t.Helper()
	return newTokens(t, closedStore(t))
}

func closedStore(t testing.TB) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "opening a store", err)
	expect.NoError(t, "closing the store", store.Close())
	return store
}
