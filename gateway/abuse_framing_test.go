package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// scribe is an upstream that writes down every byte that it is sent, and answers each request with
// an empty answer.
type scribe struct {
	url string

	mu    sync.Mutex
	heads []string // of the requests, as they came
	uris  []string // as they were read
}

func newScribe(t testing.TB) *scribe {
	t.Helper()
	s := &scribe{}
	s.url = hear(t, s.serve)
	return s
}

func (s *scribe) serve(conn net.Conn) {
	defer conn.Close()
	var came bytes.Buffer
	reader := bufio.NewReaderSize(io.TeeReader(conn, &came), 1<<16)
	for {
		from := came.Len() - reader.Buffered()
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		head, _, _ := strings.Cut(string(came.Bytes()[from:]), "\r\n\r\n")
		s.mu.Lock()
		s.heads, s.uris = append(s.heads, head), append(s.uris, request.RequestURI)
		s.mu.Unlock()
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// take returns what came since the last time.
func (s *scribe) take() (heads, uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heads, uris = s.heads, s.uris
	s.heads, s.uris = nil, nil
	return heads, uris
}

// raw sends bytes as they are on a connection of their own, and returns the statuses of all answers
// until the gateway ends the connection.
func (r *rig) raw(text string) (statuses []int) {
	r.t.Helper()
	conn := r.dial()
	var writing sync.WaitGroup
	defer writing.Wait()
	defer conn.Close()
	// the gateway may stop reading before its end
	writing.Go(func() { _, _ = io.WriteString(conn, text) })
	reader := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(reader, nil)
		if late, ok := err.(net.Error); ok && late.Timeout() { //nolint:errorlint // a connection's own error is not wrapped
			r.t.Errorf("%.60q: got statuses %v, and then neither an answer nor an end within %v", text, statuses, patience)
		}
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		statuses = append(statuses, answer.StatusCode)
	}
}

// inChunks is the hidden request as a chunk, and the end after it.
var inChunks = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)

const hidden = "POST /hidden HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// doubtful are ways to say a body's length that two servers may understand differently, with a
// request hidden in what one of them takes for the body. certain says that the gateway may read it,
// and then what it sends on has to be in one plain way.
var doubtful = map[string]struct {
	rest    string
	certain bool
}{
	"a length and chunks":               {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks, true},
	"chunks and a length":               {"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + inChunks, true},
	"chunks on a folded line":           {"Transfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n\r\n" + inChunks, true},
	"chunks with a tab":                 {"Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n" + inChunks, true},
	"chunks in capitals":                {"Transfer-Encoding: CHUNKED\r\nContent-Length: 4\r\n\r\n" + inChunks, true},
	"one length twice":                  {"Content-Length: 75\r\nContent-Length: 75\r\n\r\n" + hidden + "   ", true},
	"a length on a folded line":         {"Content-Length:\r\n 75\r\n\r\n" + hidden + "   ", true},
	"a folded line":                     {"X-Folded: a\r\n Content-Length: 0\r\nContent-Length: 75\r\n\r\n" + hidden + "   ", true},
	"line ends without CR":              {"X: y\nContent-Length: 75\n\n" + hidden + "   ", true},
	"an extension of a chunk":           {"Transfer-Encoding: chunked\r\n\r\n3;a=b;c=\"\r\n\"\r\n" + hidden, true},
	"a trailer that is a length":        {"Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 72\r\nHost: y\r\n\r\n", true},
	"a length that the connection owns": {"Connection: close, Content-Length\r\nContent-Length: 75\r\n\r\n" + hidden + "   ", true},
	"a length under another name":       {"Content_Length: 0\r\nContent-Length: 75\r\n\r\n" + hidden + "   ", true},
	"chunks under another name":         {"Transfer_Encoding: chunked\r\nContent-Length: 75\r\n\r\n" + hidden + "   ", true},
	"chunks twice":                      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, false},
	"chunks and another coding":         {"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden, false},
	"another coding and chunks":         {"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden, false},
	"another coding":                    {"Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n" + hidden, false},
	"chunks in another way":             {"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + hidden, false},
	"chunks with a control":             {"Transfer-Encoding: \x0bchunked\r\nContent-Length: 0\r\n\r\n" + hidden, false},
	"chunks in quotes":                  {"Transfer-Encoding: \"chunked\"\r\nContent-Length: 0\r\n\r\n" + hidden, false},
	"space before the colon":            {"Content-Length : 75\r\n\r\n" + hidden, false},
	"space before the coding's colon":   {"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + hidden, false},
	"two lengths":                       {"Content-Length: 0\r\nContent-Length: 75\r\n\r\n" + hidden, false},
	"a list of lengths":                 {"Content-Length: 0, 75\r\n\r\n" + hidden, false},
	"a length with a sign":              {"Content-Length: +0\r\n\r\n" + hidden, false},
	"a negative length":                 {"Content-Length: -75\r\n\r\n" + hidden, false},
	"a length in hex":                   {"Content-Length: 0x0\r\n\r\n" + hidden, false},
	"a length beyond 64 bits":           {"Content-Length: 18446744073709551616\r\n\r\n" + hidden, false},
	"an empty length":                   {"Content-Length: \r\n\r\n" + hidden, false},
	"NUL in a name":                     {"Content-Length\x00: 0\r\n\r\n" + hidden, false},
	"a bare CR":                         {"X: y\rContent-Length: 0\r\n\r\n" + hidden, false},
	"a chunk with a sign":               {"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + hidden, false},
	"a chunk in 0x":                     {"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + hidden, false},
	"a chunk that is too large":         {"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + hidden, false},
	"a chunk longer than said":          {"Transfer-Encoding: chunked\r\n\r\n1\r\nab0\r\n\r\n" + hidden, false},
	"a chunk with a bare LF":            {"Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n" + hidden, false},
	"two hosts":                         {"Host: y\r\nContent-Length: 0\r\n\r\n" + hidden, false},
	"a host that is none":               {"Content-Length: 0\r\n host\r\n\r\n" + hidden, false},
}

// The service behind the gateway never sees a request that the gateway did not: whatever is read in
// two ways is refused, or sent on in the one way that the gateway has read.
func TestUpstreamNeverSeesAHiddenRequest(t *testing.T) {
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /guarded/}, {match: /, guard: false}]`, impatient)
	sent := map[string]string{} // what each path stands for
	for what, form := range doubtful {
		for _, path := range []string{"/guarded/", "/open/"} {
			path += strconv.Itoa(len(sent))
			sent[path] = what
			statuses := r.raw("POST " + path + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n" + form.rest)
			if !form.certain && (len(statuses) > 1 || len(statuses) == 1 && statuses[0] == 200) {
				t.Errorf("POST %s with %s: got statuses %v, want no 200 and no second answer", path, what, statuses)
			}
		}
	}
	statuses := r.raw("POST /twice HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" + strings.Replace(hidden, "/hidden", "/twice", 1))
	expect.Equal(t, "two requests that every parser sees", statuses, []int{200, 200})
	r.wantEnd()
	heads, uris := upstream.take()
	seen := map[string]int{}
	for i, uri := range uris {
		seen[uri]++
		what, known := sent[uri]
		if uri != "/twice" && (!known || seen[uri] > 1) {
			t.Errorf("the upstream saw %s (%s) for the %d. time", uri, what, seen[uri])
		}
		checkPlain(t, uri+", "+what, heads[i])
	}
	if seen["/twice"] != 2 || len(seen) < len(doubtful)/2 {
		t.Errorf("requests that the upstream saw: got %v, want /twice 2 times and at least %d others", seen, len(doubtful)/2)
	}
}

var unclear = regexp.MustCompile(`(?m)^[ \t]|^[^:\r\n]*[ \t]:|[^\r]\n|\r[^\n]|\x00`)

// checkPlain makes sure that all parsers read a request's head in the same way.
func checkPlain(t *testing.T, what, head string) {
	t.Helper()
	lengths, codings := 0, 0
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
		case "content-length":
			lengths++
		case "transfer-encoding":
			if codings++; value != "chunked" {
				codings++
			}
		}
	}
	if lengths+codings > 1 || unclear.MatchString(head) {
		t.Errorf("%s: what was sent on can be read in two ways: %q", what, head)
	}
}

// Whose service is meant is not the client's to say.
func TestAuthorityOfAClientLeadsNowhereElse(t *testing.T) {
	upstream := newScribe(t)
	host := strings.TrimPrefix(upstream.url, "http://")
	r := serve(t, upstream.url, `routes: [{match: POST /guarded}, {match: shop.example/orders}, {match: /, guard: false}]`, impatient, func(c *Config) {
		c.AllowedHosts = []string{"shop.example", "elsewhere.example", "internal.example", "elsewhere", "x"}
	})
	for _, target := range []string{
		"http://elsewhere.example/open", "https://elsewhere.example:443/open", "http://169.254.169.254/open", "HTTP://ELSEWHERE/open", "/open",
	} {
		statuses := r.raw("POST " + target + " HTTP/1.1\r\nHost: internal.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		expect.Equal(t, "POST "+target, statuses, []int{200})
		heads, uris := upstream.take()
		expect.MustEqual(t, "what the upstream was asked after POST "+target, uris, []string{"/open"})
		expect.Contains(t, "what the upstream was asked after POST "+target, heads[0], "\r\nHost: "+host+"\r\n")
	}
	for _, request := range []string{
		"POST http://elsewhere.example/guarded HTTP/1.1\r\nHost: x", "POST http://SHOP.example/orders HTTP/1.1\r\nHost: x", "POST /orders HTTP/1.1\r\nHost: shop.example.", "POST /orders HTTP/1.1\r\nHost: Shop.Example:8080",
	} {
		statuses := r.raw(request + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		expect.Equal(t, request+" without a key on a guarded route", statuses, []int{400})
	}
	for _, request := range []string{
		"POST /open HTTP/1.1\r\nHost: a\r\nHost: b", "POST /open HTTP/1.1", "POST /open HTTP/1.1\r\nHost: a b", "POST /open HTTP/1.1\r\nHost: a/b", "POST //x HTTP/3.0\r\nHost: a", "POST open HTTP/1.1\r\nHost: a", "POST http://user:secret@elsewhere.example/open HTTP/1.1\r\nHost: a",
		"POST http:// HTTP/1.1\r\nHost: a\x00", "CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: elsewhere.example:443", "PRI * HTTP/2.0\r\nHost: x",
	} {
		if statuses := r.raw(request + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); len(statuses) == 1 && statuses[0] < 400 {
			t.Errorf("%q: got statuses %v, want it refused", request, statuses)
		}
	}
	_, uris := upstream.take()
	expect.Equal(t, "what the upstream was asked", uris, nil, cmpopts.EquateEmpty())
	r.wantEnd()
}
