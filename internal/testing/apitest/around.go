package apitest

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/openapi"
)

// Published is the contract of the document that the server publishes.
var Published = sync.OnceValue(func() *Contract {
	contract, err := Load(openapi.Document())
	if err != nil {
		panic(err)
	}
	return contract
})

// Own tells that a path is the test's own, of which the document need not know.
type Own func(path string) bool

// RoundTripper fails the test for every exchange that is not as the document says. It reads each
// answer to its end before it passes it on, but for event streams.
func RoundTripper(t testing.TB, next http.RoundTripper, own ...Own) http.RoundTripper {
	return &tripper{t, next, own}
}

type tripper struct {
	t    testing.TB
	next http.RoundTripper
	own  []Own
}

func (t *tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	t.t.Helper()
	target := targetOf(r)
	if foreign(target, t.own) {
		return t.next.RoundTrip(r)
	}
	seen := &copied{}
	if r.Body != nil && r.Body != http.NoBody {
		r = r.Clone(r.Context())
		r.Body = &reading{r.Body, seen}
	} else {
		seen.whole = true
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	e := Exchange{Method: r.Method, Target: target, Header: r.Header, Status: response.StatusCode, AnswerHeader: response.Header}
	if isStream(response.Header) {
		e.AnswerUnknown = true
	} else {
		e.Answer, e.AnswerUnknown = take(response)
	}
	e.Body, e.BodyUnknown = seen.text()
	if err := Published().Check(e); err != nil {
		t.t.Errorf("%v", err)
	}
	return response, nil
}

// CloseIdleConnections lets http.Client reach what it has wrapped.
func (t *tripper) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// take reads an answer to its end, and puts it back.
func take(response *http.Response) (text []byte, cut bool) {
	text, err := io.ReadAll(response.Body)
	closing := response.Body.Close()
	if err == nil {
		err = closing
	}
	again := io.Reader(bytes.NewReader(text))
	if err != nil {
		again = io.MultiReader(again, failing{err})
	}
	response.Body = io.NopCloser(again)
	return text, err != nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func isStream(header http.Header) bool {
	return strings.HasPrefix(header.Get("Content-Type"), "text/event-stream")
}

// targetOf is the path and the query as they go over the wire.
func targetOf(r *http.Request) string {
	if r.URL.Opaque != "" {
		return r.URL.Opaque
	}
	target := cmp.Or(r.URL.RawPath, r.URL.EscapedPath())
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	return target
}

func foreign(target string, own []Own) bool {
	path, _, _ := strings.Cut(target, "?")
	for _, is := range own {
		if is(path) && !Published().Known(target) {
			return true
		}
	}
	return false
}

// copied is what was read of a body.
type copied struct {
	mu    sync.Mutex
	read  bytes.Buffer
	whole bool
}

func (c *copied) text() (text []byte, unknown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.read.Bytes()), !c.whole
}

func (c *copied) took(p []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read.Write(p)
	c.whole = c.whole || errors.Is(err, io.EOF)
}

type reading struct {
	io.ReadCloser

	into *copied
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.into.took(p[:n], err)
	return n, err
}

// Handler fails the test for every exchange with a server that is not as the document says. A
// request that the server gave up, by a panic or because the client has gone, is not looked at.
func Handler(t testing.TB, server http.Handler, own ...Own) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := targetOf(r)
		if foreign(target, own) {
			server.ServeHTTP(w, r)
			return
		}
		seen, written := &copied{whole: r.ContentLength == 0}, &writing{ResponseWriter: w}
		if r.Body != nil {
			r.Body = &reading{r.Body, seen}
		}
		server.ServeHTTP(written, r)
		e := Exchange{Method: r.Method, Target: target, Header: r.Header, Status: written.status, AnswerHeader: w.Header(),
			Answer: written.text.Bytes()}
		e.Status = cmp.Or(e.Status, http.StatusOK)
		e.AnswerUnknown = written.failed || isStream(w.Header())
		e.Body, e.BodyUnknown = seen.text()
		if err := Published().Check(e); err != nil && r.Context().Err() == nil {
			t.Errorf("%v", err)
		}
	})
}

// Proxy stands in front of a server of another process until the test ends, and returns its URL.
// Programs such as curl ask it in the server's place.
func Proxy(t testing.TB, server string) string {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	wires := &http.Transport{}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     RoundTripper(t, wires),
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	})
	t.Cleanup(func() {
		proxy.Close()
		wires.CloseIdleConnections()
	})
	return proxy.URL
}

type writing struct {
	http.ResponseWriter

	status int
	text   bytes.Buffer
	failed bool
}

func (w *writing) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writing) Write(p []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.text.Write(p[:n])
	w.failed = w.failed || err != nil
	return n, err
}

func (w *writing) Unwrap() http.ResponseWriter { return w.ResponseWriter }
