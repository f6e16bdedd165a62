package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// hurried starts a service whose bounds of time are short, in a bubble of synctest.
func hurried(t *testing.T) *service {
	t.Helper()
	s, _ := serveInside(t, server.Config{
		Store: storetest.Open(t, redisstore.Config{}), Dev: true,
		RequestTimeout: 300 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond, IdleTimeout: 50 * time.Millisecond,
	})
	return s
}

// drip sends a beginning and then the same piece again and again until the service ends the
// connection, and returns what it answered. sent is how many bytes it took.
func (s *service) drip(t *testing.T, beginning, piece string, pause time.Duration) (answers []answer, sent int) {
	t.Helper()
	conn := s.connect(t)
	var writing sync.WaitGroup
	writing.Go(func() {
		for text := beginning; ; text = piece {
			n, err := io.WriteString(conn, text)
			if sent += n; err != nil {
				return
			}
			time.Sleep(pause)
		}
	})
	reader := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(reader, nil)
		if late, ok := err.(net.Error); ok && late.Timeout() { //nolint:errorlint // a connection's own error is not wrapped
			t.Errorf("%.60q, then %.20q again and again: the service lets it go on for %v", beginning, piece, patience)
		}
		if err != nil {
			conn.Close()
			writing.Wait()
			return answers, sent
		}
		body, _ := io.ReadAll(response.Body)
		answers = append(answers, answer{shortened(beginning), response.StatusCode, response.Header, body})
	}
}

func TestClientThatSendsLetterByLetterIsCutOff(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what, beginning, piece string
		status                 int // of the service's answer; 0 = there is none
	}{
		{"request line", "G", "E", 0},
		{"header", "GET /incr/k HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a", 0},
		{"header fields", "GET /incr/k HTTP/1.1\r\nHost: localhost\r\n", "A: b\r\n", 0},
		{"body", "POST /incr/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{", " ", 400},
		{"chunked body", "POST /incr/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 400},
		{"guarded body", "POST /payments HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: slow\r\nContent-Length: 100000\r\n\r\n{", " ", 400},
		{"body that is not read", "POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", "a", 404},
		{"body of a look", "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", "a", 200},
		{"trailer", "POST /payments HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: slow\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n", 400},
		{"second request", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nG", "E", 200},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hurried(t)
				answers, _ := s.drip(t, row.beginning, row.piece, 10*time.Millisecond)
				rest := answers
				if len(rest) > 0 && rest[0].status == row.status {
					rest = rest[1:]
				} else if row.status != 0 {
					t.Errorf("got answers %v, want status %d", answers, row.status)
				}
				// which net/http answers, or nothing
				if len(rest) > 1 || len(rest) == 1 && rest[0].status != http.StatusBadRequest && rest[0].status != http.StatusRequestTimeout {
					t.Errorf("got answers %v, want none after the service's own but 400 or 408", answers)
				}
				wantNothingDone(t, s)
			})
		})
	}
}

// wantNothingDone makes sure that nothing was counted and no payment made.
func wantNothingDone(t *testing.T, s *service) {
	t.Helper()
	s.do(t, "GET", "/counter/k", "").wantStatus(t, 404)
	expect.Equal(t, "payments after requests that were none", s.ledger(t).Total, 0)
	if log := s.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("what a client does is no error of the service:\n%s", log)
	}
}

// A body is read up to the limit, whatever the client goes on to send, and what follows it is
// never a request.
func TestBodyThatNeverEndsIsRefused(t *testing.T) {
	t.Parallel()
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, MaxBody: 64 << 10})
	const size = 32 << 10
	spaces := strings.Repeat(" ", size)
	for _, path := range []string{"/incr/k", "/payments", "/token", "/nope", "/livez"} {
		for what, row := range map[string]struct{ framing, piece string }{
			"told ahead": {"Content-Length: 9223372036854775807\r\n\r\n", spaces},
			"in chunks":  {"Transfer-Encoding: chunked\r\n\r\n", strconv.FormatInt(size, 16) + "\r\n" + spaces + "\r\n"},
		} {
			answers, sent := s.drip(t, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: endless\r\n"+row.framing, row.piece, 0)
			if len(answers) > 1 || len(answers) == 1 && answers[0].status < 400 {
				t.Errorf("POST %s with a body that never ends, %s: got %v, want one refusal or no answer", path, what, answers)
			}
			if sent > 32<<20 { // what the operating system takes off is some megabytes
				t.Errorf("POST %s with a body that never ends, %s: the service has taken %d bytes, want 32 MiB at most", path, what, sent)
			}
		}
	}
	wantNothingDone(t, &s.service)
}

// However many connect and ask for nothing, who asks is answered.
func TestCrowdOfUnusedConnectionsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), MaxConnections: 20})
	for i := range 100 {
		conn := s.connect(t)
		if i%2 == 1 {
			// it stays with its header
			_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Never: end")
		}
	}
	s.client.Transport = &http.Transport{DisableKeepAlives: true}
	for range 30 {
		s.do(t, "POST", "/incr/k", "")
	}
	s.do(t, "GET", "/counter/k", "", "Accept: text/plain").wantBody(t, "30\n")
	s.logLine(t, "as many connections are open as may be")
}
