package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// raw sends bytes as they are on a connection of their own, and returns all answers until the
// service ends the connection.
func (s *service) raw(t *testing.T, request string) (answers []answer) {
	t.Helper()
	conn := s.connect(t)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(conn, request) // the service may stop reading before its end
	}()
	defer func() { <-written }()
	defer conn.Close() // ends a write that is not read
	reader := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return answers
		}
		body, _ := io.ReadAll(response.Body)
		answers = append(answers, answer{shortened(request), response.StatusCode, response.Header, body})
	}
}

func TestRequestLinesAsNoClientWritesThem(t *testing.T) {
	s := onEmbedded(t)
	for _, row := range []struct {
		line string
		code api.Code
	}{
		{"GET //incr/k", "not-found"},
		{"GET //incr//k", "not-found"},
		{"GET *", "invalid-request"},
		{"POST x:http://h/incr/k", "invalid-request"},
		{"POST x:/incr/k", "invalid-request"},
		{"POST http:/incr/k", "invalid-request"},
		{"POST http://user@h/incr/k", "invalid-request"},
		{"POST ftp://h/incr/k", "invalid-request"},
		{"GET /incr/k\xff", "invalid-name"},
		{"GET http://localhost/incr/a%2Fb", "invalid-name"},
		{"POST /incr/k?by=\xff", "invalid-request"},
		{"incr /incr/k", "method-not-allowed"},
	} {
		answers := s.raw(t, row.line+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if len(answers) != 1 {
			t.Fatalf("%q: got %d answers, want 1: %v", row.line, len(answers), answers)
		}
		checkProblem(t, answers[0], row.code)
	}
	checkProblem(t, s.do(t, "GET", "/counter/k", ""), api.NotFound) // nothing was counted
}

// net/http answers what is no HTTP before a handler of ours sees it: the status is right, but the
// body is a line of text and there is no request id.
func TestWhatIsNoHTTPIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for _, request := range []string{
		"GET /incr/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /incr/% HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /incr/50%off HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /incr/a\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /incr/k b HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET incr/k HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /incr/k HTTP/1.1\r\n\r\n",
		"GET /incr/k HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
		"POST /incr/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
		"POST /incr/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"POST /incr/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
		"GET /incr/k HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"\r\n\r\n\x00\x01\x02\r\n\r\n",
	} {
		answers := s.raw(t, request)
		if len(answers) != 1 || answers[0].status < 400 || answers[0].status > 599 {
			t.Errorf("%.60q: got %v, want one answer with a status from 400 to 599", request, answers)
		}
	}
	checkProblem(t, s.do(t, "GET", "/counter/k", ""), api.NotFound) // nothing was counted
}

func TestCutBodyIsRefusedAndChangesNothing(t *testing.T) {
	s := onEmbedded(t)
	for _, body := range []string{
		"Content-Length: 100\r\n\r\n{}",
		"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
		"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
	} {
		for _, path := range []string{"/incr/k", "/payments"} {
			conn, err := net.Dial("tcp", s.addr)
			expect.NoError(t, "connecting to the service", err)
			_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: cut\r\n"+body)
			_ = conn.(*net.TCPConn).CloseWrite()
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			expect.NoError(t, fmt.Sprintf("POST %s with the cut body %q: reading the answer", path, body), err)
			text, _ := io.ReadAll(response.Body)
			conn.Close()
			checkProblem(t, answer{"POST " + path + " with " + body, response.StatusCode, response.Header, text}, "invalid-request")
		}
	}
	checkProblem(t, s.do(t, "GET", "/counter/k", ""), api.NotFound) // nothing was counted
	expect.Equal(t, "payments made with cut bodies", s.ledger(t).Total, 0)
}

// A body that is refused half read must not be taken for more requests: a client that chooses a
// body would choose requests, too.
func TestRestOfABodyThatIsTooLargeIsNoRequest(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	hidden := "\r\n\r\nGET /incr/hidden HTTP/1.1\r\nHost: localhost\r\n"
	body := strings.Repeat(hidden, 2<<20/len(hidden))
	for _, path := range []string{"/payments", "/incr/k", "/token", "/worker/p", "/livez", "/nope"} {
		const chunk = 1 << 15
		for _, framed := range []string{
			"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body,
			"Transfer-Encoding: chunked\r\n\r\n" + inChunks(body, chunk),
		} {
			answers := s.raw(t, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: large\r\n"+framed)
			if len(answers) > 1 {
				t.Errorf("POST %s with a body that is too large: got %d answers, want 1 at most; the second: %v", path, len(answers), answers[1])
			}
		}
	}
	// the body was taken for no request
	checkProblem(t, s.do(t, "GET", "/counter/hidden", ""), api.NotFound)
}

func inChunks(body string, size int) string {
	var framed strings.Builder
	for ; body != ""; body = body[min(size, len(body)):] {
		part := body[:min(size, len(body))]
		framed.WriteString(strconv.FormatInt(int64(len(part)), 16) + "\r\n" + part + "\r\n")
	}
	return framed.String() + "0\r\n\r\n"
}
