package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The trailers of a request are there only when its body has come.
func TestTrailersOfARequestArePassedOn(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v", r.Trailer)
	})
	r := start(t, upstream.URL, payments)
	conn := r.dial()
	say(conn, "POST /other HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n")
	expect.Contains(t, "the trailers that the upstream saw", untilEnd(t, "POST /other", conn), "map[X-Sum:[42]]")
}

// HTTP/2 has no upgrades: such a request takes a connection of HTTP/1.1.
func TestUpgradePassesToAnUpstreamWithHTTP2(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		defer conn.Close()
		say(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	}))
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	defer upstream.Close()
	r := start(t, upstream.URL, payments, func(c *Config) { c.TLS = upstream.Client().Transport.(*http.Transport).TLSClientConfig })
	expect.Equal(t, "GET /open", r.do("GET", "/open", "").body, "HTTP/2.0")
	for _, protocol := range []string{"websocket", "echo"} {
		conn := r.dial()
		say(conn, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
		expect.Contains(t, "upgrade to "+protocol, readUntil(t, conn, "\r\n\r\n"), "HTTP/1.1 101")
		say(conn, "hello")
		expect.Contains(t, "what comes back of "+protocol, readUntil(t, conn, "hello"), "hello")
		conn.Close()
	}
}

// A client that leaves while the gateway still connects is not counted as an upstream that cannot
// be reached.
func TestClientThatLeavesBeforeThereIsAConnectionHasLeft(t *testing.T) {
	connects := make(chan struct{}, 9)
	silent := hear(t, func(net.Conn) { connects <- struct{}{} }) // no TLS handshake
	s := serve(t, "https"+strings.TrimPrefix(silent, "http"), payments)
	ctx, hangUp := context.WithCancel(t.Context())
	go func() { <-connects; hangUp() }()
	_, err := s.send(ctx, "GET", "/other", "")
	expect.Error(t, "GET /other of a client that hangs up", err, context.Canceled)
	s.wantMetrics(
		`coatcheck_gateway_upstream_failures_total{kind="client_gone"} 1`,
		`coatcheck_gateway_upstream_failures_total{kind="unreachable"} 0`,
	)
	s.wantEnd()
}

// What a path has encoded stays so, also beside a character that the client should have encoded.
func TestPathWithACharacterThatShouldHaveBeenEncoded(t *testing.T) {
	upstream := mirror(t)
	r := start(t, upstream.URL, "routes: [{match: 'POST /{shop}'}, {match: /, guard: false}]")
	for path, want := range map[string]string{
		"/a%2Fb|c": "/a%2Fb%7Cc", `/"%2f{x}<y>`: "/%22%2f%7Bx%7D%3Cy%3E", "/\xc3\xa9%2Fx": "/%C3%A9%2Fx", "/a^b": "/a%5Eb", "/%2F[x]'!?q=|%2F": "/%2F[x]'!?q=|%2F", "/%7C%2F|#": "/%7C%2F%7C%23",
	} {
		conn := r.dial()
		say(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		var got seen
		_, body, _ := strings.Cut(untilEnd(t, "GET "+path, conn), "\r\n\r\n")
		expect.Error(t, "reading the answer to GET "+path, json.Unmarshal([]byte(body), &got), nil)
		expect.Equal(t, "the URI that the upstream saw of "+path, got.URI, want)
		expect.Equal(t, "status of POST "+path+" without a key", r.line("POST "+path), 400)
	}
}
