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
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// hurried is a service that listens by itself, and whose bounds of time are short.
func hurried(t *testing.T) *stoppable {
	t.Helper()
	return listen(t, server.Config{
		Store: storetest.Open(t, redisstore.Config{}), Dev: true,
		RequestTimeout: 300 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond, IdleTimeout: 50 * time.Millisecond,
	})
}

// drip sends a beginning and then the same piece again and again until the service ends the connection, and returns what it answered. sent is how many bytes it took.
func (s *service) drip(t *testing.T, beginning, piece string, pause time.Duration) (answers []answer, sent int) {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%.60q: the service lets it go on", beginning)
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
	s := hurried(t)
	for _, row := range []struct {
		what, beginning, piece string
		status                 int // of the service's answer; 0 = there is none
	}{
		{"request line", "G", "E", 0},
		{"header", "GET /incr/k HTTP/1.1\r\nHost: x\r\nX-Slow: ", "a", 0},
		{"header fields", "GET /incr/k HTTP/1.1\r\nHost: x\r\n", "A: b\r\n", 0},
		{"body", "POST /incr/k HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", " ", 400},
		{"chunked body", "POST /incr/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 400},
		{"guarded body", "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: slow\r\nContent-Length: 100000\r\n\r\n{", " ", 400},
		{"body that nobody reads", "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", "a", 404},
		{"body of a look", "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", "a", 200},
		{"trailer", "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: slow\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n", 400},
		{"second request", "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nG", "E", 200},
	} {
		answers, _ := s.drip(t, row.beginning, row.piece, 10*time.Millisecond)
		if len(answers) > 0 && answers[0].status == row.status {
			answers = answers[1:]
		} else if row.status != 0 {
			t.Errorf("%s: no %d: %+v", row.what, row.status, answers)
		}
		if len(answers) > 1 || len(answers) == 1 && answers[0].status != http.StatusBadRequest && answers[0].status != http.StatusRequestTimeout { // which net/http answers, or nothing
			t.Errorf("%s: %+v", row.what, answers)
		}
	}
	wantNothingDone(t, s)
}

// wantNothingDone makes sure that nothing was counted and nobody charged.
func wantNothingDone(t *testing.T, s *stoppable) {
	t.Helper()
	if a := s.do(t, "GET", "/counter/k", ""); a.status != 404 {
		t.Errorf("something was counted: %s", a.body)
	}
	if n := s.ledger(t).Total; n != 0 {
		t.Errorf("%d charges", n)
	}
	if log := s.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("what a client does is no error of the service:\n%s", log)
	}
}

// A body is read up to the limit, whatever the client goes on to send, and what is behind it is never a request.
func TestBodyThatNeverEndsIsRefused(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, MaxBody: 64 << 10})
	const size = 32 << 10
	spaces := strings.Repeat(" ", size)
	for _, path := range []string{"/incr/k", "/payments", "/token", "/nope", "/livez"} {
		for what, row := range map[string]struct{ framing, piece string }{
			"told ahead": {"Content-Length: 9223372036854775807\r\n\r\n", spaces},
			"in chunks":  {"Transfer-Encoding: chunked\r\n\r\n", strconv.FormatInt(size, 16) + "\r\n" + spaces + "\r\n"},
		} {
			answers, sent := s.drip(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: endless\r\n"+row.framing, row.piece, 0)
			if len(answers) > 1 || len(answers) == 1 && answers[0].status < 400 {
				t.Errorf("%s %s: %+v", path, what, answers)
			}
			if sent > 32<<20 { // what the operating system takes off is some megabytes
				t.Errorf("%s %s: the service has taken %d bytes", path, what, sent)
			}
		}
	}
	wantNothingDone(t, s)
}

func TestUnusedConnectionIsClosed(t *testing.T) {
	s := hurried(t)
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%+v %v", response, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("it is kept: %v", err)
	}
}

// However many connect and ask for nothing, who asks is answered.
func TestCrowdOfUnusedConnectionsKeepsNobodyOut(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), MaxConnections: 20})
	for i := range 100 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 1 {
			_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Never: end") // it stays with its header
		}
	}
	s.client.Transport = &http.Transport{DisableKeepAlives: true}
	for range 30 {
		s.do(t, "POST", "/incr/k", "")
	}
	if a := s.do(t, "GET", "/counter/k", "", "Accept: text/plain"); string(a.body) != "30\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.logLine(t, "as many connections are open as may be")
}
