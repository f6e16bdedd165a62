package server_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A body that is compressed is not read at all: the largest that it may become is not known before.
func TestCompressedBodyIsRefusedAndNotInflated(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, _ = packed.Write(append([]byte(`{"ttl_ms":600000`), bytes.Repeat([]byte(" "), 4<<20)...))
	if err := packed.Close(); err != nil || bomb.Len() > 1<<17 {
		t.Fatalf("compressing 4 MiB of spaces: got %d bytes (%v), want 128 KiB at most", bomb.Len(), err)
	}
	token := s.issue(t, "")
	for _, path := range []string{"/token", "/token/" + token + "/claim", "/incr/k", "/worker/p", "/lock/l", "/payments", "/nope", "/livez"} {
		for _, coding := range []string{"gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip", "", "none"} {
			a := s.do(t, "POST", path, bomb.String(), "Content-Encoding: "+coding, "Idempotency-Key: bomb")
			wantField(t, a, api.UnsupportedEncoding, "Content-Encoding")
			a.wantHeader(t, "Accept-Encoding", "identity")
		}
	}
	for _, header := range []string{"Content-Encoding: identity", "Content-Encoding: Identity "} {
		must[api.TokenIssued](t, s, 201, "POST", "/token", "{}", header)
	}
	// there is nothing to inflate
	must[api.TokenIssued](t, s, 201, "POST", "/token", "", "Content-Encoding: gzip")
	s.do(t, "GET", "/counter/k", "").wantStatus(t, 404)
	expect.Equal(t, "the token's state after the bombs", s.state(t, token), "issued")
	expect.Equal(t, "payments after the bombs", s.ledger(t).Total, 0)
}

// evil is a header that no answer has, and that no log tells of.
const evil = "Zevil: 1"

// Line ends in what a client chooses end neither a header of the answer nor a line of the log.
func TestLineEndsOfAClientEndNothing(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	before := strings.Count(s.log.String(), "\n")
	asked := 0
	for _, end := range []string{"%0d%0a", "%0a", "%0d", "%E5%98%8A%E5%98%8D", "\\r\\n", "%250d%250a"} {
		for _, request := range requestsWith(end) {
			a, err := s.send(t.Context(), request)
			if err != nil {
				continue // Go's client does not send such a path
			}
			asked++
			for name, values := range a.header {
				if strings.Contains(name+strings.Join(values, ""), "Zevil") && name != "Allow" {
					t.Errorf("%v; want none of what the client wrote, got header %s: %q", a, name, values)
				}
			}
		}
	}
	for _, request := range rawLineEnds {
		for _, a := range s.raw(t, request) {
			if asked++; a.header.Get("Zevil") != "" || strings.Contains(a.header.Get("X-Request-Id"), "Zevil") {
				t.Errorf("%q: %v; want no header of the client's", request, a)
			}
		}
	}
	log := s.log.String()
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("the log has a line of a client's: %q", line)
		}
	}
	if strings.Contains(log, "Zevil") {
		t.Errorf("the log holds what a client chose:\n%s", log)
	}
	wantBetween(t, "requests that were answered", asked, 50, 1000)
	wantBetween(t, "lines of the log", strings.Count(log, "\n")-before, 0, asked)
}

// requestsWith are requests of which each has a line end, written in some way, and a header after
// it.
func requestsWith(end string) []call {
	return []call{
		{method: "POST", path: "/incr/k" + end + evil[:5]},
		{method: "POST", path: "/incr/k?by=1" + end + evil[:5]},
		{method: "POST", path: "/incr/k?" + end + evil[:5] + "=1"},
		{method: "GET", path: "/token/t" + end + evil[:5]},
		{method: "GET", path: "/problems/x" + end + evil[:5]},
		{method: "GET", path: "/events" + end + evil[:5]},
		{method: "GET", path: "/console/x" + end + evil[:5]},
		{method: "POST", path: "/incr/k", header: []string{"X-Request-Id: a" + end + evil}},
		{method: "POST", path: "/payments", header: []string{"Idempotency-Token: a" + end + evil}, body: "{}"},
		{method: "POST", path: "/payments", header: []string{"Idempotency-Key: a" + end + evil}, body: "{}"},
		{method: "DELETE", path: "/lock/l", header: []string{"Lease-Token: a" + end + evil}},
		{method: "POST", path: "/lock/l", body: `{"owner":"a` + "\\r\\n" + evil + `"}`},
		{method: "POST", path: "/token", body: `{"scope":"a\n` + evil + `"}`},
		{method: "Zevil", path: "/incr/k"},
	}
}

// rawLineEnds is what Go's client refuses to write: line ends as they are.
var rawLineEnds = []string{
	"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\n" + evil + "\r\nConnection: close\r\n\r\n",
	"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r" + evil + "\r\nConnection: close\r\n\r\n",
	"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r\n " + evil + "\r\nConnection: close\r\n\r\n",
	"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\x00" + evil + "\r\nConnection: close\r\n\r\n",
	"GET /livez\r" + evil + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
	"Zevil\r /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
}
