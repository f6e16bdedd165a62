package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// recorded has a gateway's spans kept.
func recorded() (*tracetest.SpanRecorder, func(*Config)) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	return spans, func(c *Config) { c.Tracer = provider.Tracer("test") }
}

// ended are the spans that have ended, with their outcome and whether they failed.
func ended(spans *tracetest.SpanRecorder) (list []string) {
	for _, span := range spans.Ended() {
		line := span.Name()
		for _, one := range span.Attributes() {
			if one.Key == outcomeKey || one.Key == "http.response.status_code" || one.Key == "error.type" {
				line += " " + one.Value.String()
			}
		}
		if span.Status().Code == codes.Error {
			line += " failed"
		}
		list = append(list, line)
	}
	return list
}

// What is passed on is the same with traces as without: a connection that becomes another
// protocol's, trailers, and a stream.
func TestTracesChangeNothingThatIsPassedOn(t *testing.T) {
	upstream := converse(t, func(_ int64, r *http.Request, conn net.Conn) bool {
		if r.Header.Get("Upgrade") == "" {
			return say(conn, "HTTP/1.1 200 OK\r\nTrailer: X-Back\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\nX-Back: 42\r\n\r\n")
		}
		say(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, conn) // until it is closed
		return false
	})
	spans, kept := recorded()
	s := serve(t, upstream.url, payments, kept)
	conn := s.dial()
	say(conn, "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	readUntil(t, conn, "\r\n\r\n")
	say(conn, "hello")
	expect.Equal(t, "echo of an upgraded connection", readUntil(t, conn, "hello"), "hello")
	conn.Close()
	conn = s.dial()
	say(conn, "POST /open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
	expect.Contains(t, "POST /open", readUntil(t, conn, "\r\n0\r\n"), "done")
	expect.Contains(t, "trailer of POST /open", readUntil(t, conn, "\r\n\r\n"), "X-Back: 42")
	conn.Close()
	s.wantEnd()
	got := ended(spans)
	slices.Sort(got)
	expect.Equal(t, "spans that have ended", got, []string{"GET / unguarded 101", "GET 101", "POST / unguarded 200", "POST 200"})
}

// A request to the upstream that fails has a failed span, which names the failure without quoting
// the request or the answer.
func TestTracesOfRequestsThatFail(t *testing.T) {
	upstream := converse(t, func(n int64, _ *http.Request, conn net.Conn) bool {
		switch n {
		case 1:
			say(conn, "Zgarbage\r\n\r\n")
		case 2:
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nZcut")
		case 3:
			say(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		}
		return false
	})
	spans, kept := recorded()
	s := serve(t, upstream.url, payments, kept)
	s.pay("a")
	s.pay("b")
	s.do("GET", "/idempotency-policy", "")
	s.do("GET", "/Zmissing", "")
	s.do("ZMETHOD", "/Z", "")
	s.wantEnd() // a span ends after its answer was sent
	got := fmt.Sprint(ended(spans))
	expect.Contains(t, "spans that have ended", got,
		"POST _OTHER failed", "POST 200 _OTHER failed", "POST /payments granted 503 503 failed", "GET own 200", "GET 404 404 failed",
		"GET / unguarded 404", "HTTP / unguarded 503 503 failed")
	for _, span := range spans.Ended() {
		if text := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status()); strings.Contains(text, "Z") {
			t.Errorf("a span quotes the traffic: %s", text)
		}
	}
}
