package frontdoor_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// refusing answers 413 without a look at the body, /page with more than net/http keeps back, /half
// after half of ten bytes, /early and then reads on.
func refusing(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/half":
		_, _ = io.ReadFull(r.Body, make([]byte, 5))
		_ = r.Body.Close()
	case "/early":
		_ = frontdoor.Stream(r, 0)
		_, _ = io.WriteString(w, "hello ")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, r.Body)
		return
	}
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	if r.URL.Path == "/page" {
		_, _ = io.WriteString(w, strings.Repeat("too large ", 1000))
	}
}

func refusal(path string, framing string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + framing + "\r\n\r\n"
}

// A refused request whose body does not come gives its place to others soon.
func TestRefusedRequestsWithoutTheirBodiesKeepNobodyOut(t *testing.T) {
	var asked atomic.Int64
	h := openHandler(t, frontdoor.Config{MaxConnections: 6}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		refusing(w, r)
	}))
	var silent []*visitor
	for _, path := range []string{"/", "/page"} {
		for _, framing := range []string{"Content-Length: 5", "Content-Length: 5000000", "Transfer-Encoding: chunked"} {
			v := h.visit()
			v.say(refusal(path, framing))
			silent = append(silent, v)
		}
	}
	// until then a newcomer takes their place
	expect.Eventually(t, "all have asked", func() bool { return int(asked.Load()) == len(silent) })
	late := h.visit()
	late.say(refusal("/", "Content-Length: 0"))
	expect.Equal(t, "a newcomer", late.hears(), 413)
	_ = late.Close()
	made := 0 // those that made room for the newcomer
	for i, v := range silent {
		if status := v.hears(); status == 0 {
			made++
			continue
		} else if status != 413 {
			t.Errorf("refusal %d of a request whose body does not come: got %d, want 413", i, status)
		}
		v.ends(fmt.Sprintf("connection %d whose request was refused", i))
	}
	if made > 1 {
		t.Errorf("connections that ended without an answer: got %d, want at most one for the newcomer", made)
	}
	expect.Eventually(t, "no connection is open", func() bool { return h.door.Inside() == 0 })
}

// A connection on which the whole of a small body comes is kept, and the body is no request.
func TestConnectionIsKeptWhereTheRefusedBodyComes(t *testing.T) {
	h := openHandler(t, frontdoor.Config{}, http.HandlerFunc(refusing))
	v := h.visit()
	for _, request := range []string{
		refusal("/", "Content-Length: 10") + "0123456789",
		refusal("/half", "Content-Length: 10") + "0123456789",
		refusal("/page", "Transfer-Encoding: chunked") + "a\r\n0123456789\r\n0\r\n\r\n",
		refusal("/", "Content-Length: 200000") + strings.Repeat("GET / HTTP/1.1\r\n\r\n  ", 10_000),
	} {
		v.say(request)
		expect.Equal(t, fmt.Sprintf("%.50q", request), v.hears(), 413)
	}
}

// pipe is a listener of one connection within the process, on which a write waits until it is read.
func pipe(t *testing.T) (client net.Conn) {
	t.Helper()
	client, accepted := net.Pipe()
	door := frontdoor.New(frontdoor.Config{})
	web := door.Server(http.HandlerFunc(refusing))
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(door.Around(&single{conn: accepted, end: make(chan struct{})})) })
	t.Cleanup(func() {
		_ = client.Close()
		_ = web.Close()
		serving.Wait()
	})
	return client
}

// single is a listener that accepts one connection.
type single struct {
	conn net.Conn
	end  chan struct{}
	once sync.Once
}

func (s *single) Accept() (net.Conn, error) {
	if conn := s.conn; conn != nil {
		s.conn = nil
		return conn, nil
	}
	<-s.end
	return nil, net.ErrClosed
}

func (s *single) Close() error {
	s.once.Do(func() { close(s.end) })
	return nil
}

func (s *single) Addr() net.Addr { return &net.UnixAddr{} }

func TestClientThatWritesOnAfterARefusalIsReadForAMoment(t *testing.T) {
	for what, row := range map[string]struct {
		size  int
		taken bool
	}{
		"as much as is discarded": {900 << 10, true},
		"far more":                {3 << 20, false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := pipe(t)
				wrote := make(chan error, 1)
				go func() {
					_, err := io.WriteString(conn, refusal("/", fmt.Sprintf("Content-Length: %d", row.size))+strings.Repeat("a", row.size))
					wrote <- err
				}()
				v := &visitor{conn, t, bufio.NewReader(conn)}
				expect.Equal(t, "POST of a body that is too large", v.hears(), 413)
				if err := <-wrote; (err == nil) != row.taken {
					t.Errorf("writing %d bytes: got %v, want success %v", row.size, err, row.taken)
				}
				v.ends("a client that was refused")
			})
		})
	}
}

func TestStreamedBodyIsReadOnBesideItsAnswer(t *testing.T) {
	h := openHandler(t, frontdoor.Config{}, http.HandlerFunc(refusing))
	v := h.visit()
	v.say(refusal("/early", "Content-Length: 10") + "01234")
	answer, err := http.ReadResponse(v.reader, nil)
	expect.NoError(t, "an answer that begins before the body has ended", err)
	defer answer.Body.Close()
	begin := make([]byte, len("hello "))
	_, _ = io.ReadFull(answer.Body, begin)
	v.say("56789")
	rest, _ := io.ReadAll(answer.Body)
	expect.Equal(t, "the answer", string(begin)+string(rest), "hello 0123456789")
	expect.Equal(t, "the connection is closed after it", answer.Close, true)
}

// A proxy's answer can end while the body is still waited for.
func TestBodyThatIsStillReadWhenItsAnswerEndsHoldsNothing(t *testing.T) {
	var reading sync.WaitGroup
	h := openHandler(t, frontdoor.Config{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = frontdoor.Stream(r, 0)
		begun := make(chan struct{})
		reading.Go(func() {
			_, _ = io.ReadFull(r.Body, make([]byte, 5))
			close(begun)
			_, _ = io.Copy(io.Discard, r.Body)
		})
		<-begun
		time.Sleep(time.Millisecond) // so that it waits, more often than not
	}))
	v := h.visit()
	v.say(refusal("/", "Content-Length: 10") + "01234")
	expect.Equal(t, "POST of half a body", v.hears(), 200)
	v.ends("a client that does not send the rest")
	reading.Wait()
}
