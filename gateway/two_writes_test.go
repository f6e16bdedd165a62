package gateway

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Python's http.server and many others write the header of an answer, then its body. Between the
// two net/http's server has closed the body of the request, of which its transport had sent all and
// wanted to see the end: it took that for a failure and closed the connection.
func TestAnswerInTwoWritesToAnUnguardedRequestIsWhole(t *testing.T) {
	const each = 800
	for _, row := range []struct{ routes, path string }{
		{payments, "/other"},
		{"routes: [{match: POST /payments, required: false}, {match: /, guard: false}]", "/payments"},
	} {
		upstream := converse(t, func(_ int64, _ *http.Request, conn net.Conn) bool {
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")
			time.Sleep(2 * time.Millisecond) // as with Nagle's algorithm
			say(conn, "all of it is")
			return true
		})
		r := start(t, upstream.url, row.routes)
		// keeps its connections
		r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: patience}
		var clients sync.WaitGroup
		for client := range 8 {
			clients.Go(func() {
				for i := range each / 8 {
					body := strings.Repeat("x", 1+client*each+i)
					a, err := r.send(t.Context(), "POST", row.path, body)
					if got := a.said(); err != nil || got != "200 all of it is" {
						t.Errorf("request %d, POST %s with %d bytes: got %q and error %v, want the whole answer", i, row.path, len(body), got, err)
						return
					}
				}
			})
		}
		clients.Wait()
		r.client.CloseIdleConnections()
		upstream.wantRead(t, each)
	}
}

// An answer that begins before its request has ended goes on while more of the request comes.
func TestUnguardedAnswerThatComesWhileTheRequestDoes(t *testing.T) {
	upstream := hear(t, func(conn net.Conn) {
		defer conn.Close()
		for { // a kept connection has several
			if _, err := until(conn, "first"); err != nil {
				return
			}
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\nbegun ")
			_, _ = until(conn, "second")
			say(conn, "then ended")
		}
	})
	r := start(t, upstream, payments)
	for _, row := range []struct{ head, first, second string }{
		{"Content-Length: 11", "first", "second"},
		{"Transfer-Encoding: chunked", "5\r\nfirst\r\n", "6\r\nsecond\r\n0\r\n\r\n"},
	} {
		conn := r.dial()
		say(conn, "POST /other HTTP/1.1\r\nHost: x\r\n"+row.head+"\r\n\r\n"+row.first)
		readUntil(t, conn, "begun ")
		say(conn, row.second)
		readUntil(t, conn, "then ended")
		conn.Close()
	}
}
