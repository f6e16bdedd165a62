package frontdoor_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// net/http keeps a connection that it has refused for half a second, so that the refusal is read
// before the end.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience only ends a test that hangs.
const patience = 2 * time.Minute

// house is a server behind a door. A request for /wait is answered when the test says so, one for
// /keep takes its connection over.
type house struct {
	t       *testing.T
	door    *frontdoor.Door
	addr    string
	secure  *tls.Config // nil = without TLS
	log     logtest.Text
	begun   chan struct{}
	proceed chan struct{}
	kept    chan net.Conn
}

func open(t *testing.T, config frontdoor.Config) *house {
	t.Helper()
	h := &house{t: t, begun: make(chan struct{}, 10), proceed: make(chan struct{}), kept: make(chan net.Conn, 10)}
	h.serve(config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wait":
			h.begun <- struct{}{}
			<-h.proceed
		case "/keep":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Errorf("taking the connection over: %v", err)
				return
			}
			h.kept <- conn
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	return h
}

// openHandler opens a house with a handler of its own.
func openHandler(t *testing.T, config frontdoor.Config, handler http.Handler) *house {
	t.Helper()
	h := &house{t: t}
	h.serve(config, handler)
	return h
}

func (h *house) serve(config frontdoor.Config, handler http.Handler) {
	h.t.Helper()
	config.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	h.door = frontdoor.New(config)
	web := h.door.Server(handler)
	web.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	l := listen(h.t)
	h.addr = l.Addr().String()
	if h.secure != nil {
		l = tls.NewListener(frontdoor.Plain(l), h.secure)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(h.door.Around(l)) })
	h.t.Cleanup(func() {
		_ = web.Close()
		serving.Wait()
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "net.Listen", err)
	return l
}

type visitor struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func (h *house) visit() *visitor {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	expect.NoError(h.t, "net.Dial", err)
	h.t.Cleanup(func() { _ = conn.Close() })
	expect.NoError(h.t, "conn.SetDeadline", conn.SetDeadline(time.Now().Add(patience)))
	return &visitor{conn, h.t, bufio.NewReader(conn)}
}

func (v *visitor) say(text string) { _, _ = io.WriteString(v, text) } // the server may have hung up

func (v *visitor) ask(path string) { v.say("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n") }

// hears is the status of the next answer, 0 if the connection has ended.
func (v *visitor) hears() int {
	v.t.Helper()
	answer, err := http.ReadResponse(v.reader, nil)
	if err != nil {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // a connection's own error is not wrapped
			v.t.Fatalf("waited %v in vain: an answer or the end of the connection", patience)
		}
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// isAnswered asks, and wants an answer.
func (v *visitor) isAnswered() {
	v.t.Helper()
	v.ask("/")
	expect.MustEqual(v.t, "GET /", v.hears(), 200)
}

// ends wants the connection to end without another answer.
func (v *visitor) ends(what string) {
	v.t.Helper()
	expect.Equal(v.t, "status that "+what+" hears (0 is its end)", v.hears(), 0)
}

// crowded reports whether a newcomer stands at the door.
func (h *house) crowded() bool {
	return strings.Contains(h.log.String(), "as many connections are open as may be")
}

func TestOneMoreIsLetInForTheOneThatIsQuietForLongest(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 3})
	first, second, third := h.visit(), h.visit(), h.visit()
	// so that the second is quiet for longest
	for _, v := range []*visitor{first, second, third, first} {
		v.isAnswered()
		expect.Eventually(t, "the connection is quiet", func() bool { return h.door.Quiet() == h.door.Inside() })
	}
	fourth := h.visit()
	fourth.isAnswered()
	second.ends("the one that was quiet for longest")
	for _, v := range []*visitor{first, third, fourth} {
		v.isAnswered()
	}
	expect.Equal(t, "how often the log tells of it", strings.Count(h.log.String(), "as many connections are open as may be"), 1)
}

// A client that says nothing, or its header letter by letter, is as quiet as one between two
// requests.
func TestThoseThatNeverFinishARequestGoFirst(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 2, HeaderTimeout: time.Hour})
	silent, slow := h.visit(), h.visit()
	slow.say("GET / HTTP/1.1\r\nHos")
	expect.Eventually(t, "both are in", func() bool { return h.door.Quiet() == 2 })
	for range 20 {
		h.visit().isAnswered()
	}
	silent.ends("a connection on which nothing was said")
	slow.ends("a connection with half a header")
}

func TestNewcomerWaitsWhileEveryConnectionHasARequest(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 2})
	busy := []*visitor{h.visit(), h.visit()}
	for _, v := range busy {
		v.ask("/wait")
		<-h.begun
	}
	late := h.visit()
	late.ask("/wait")
	expect.Eventually(t, "it stands at the door", h.crowded)
	expect.Equal(t, "connections inside", h.door.Inside(), 2)
	expect.Equal(t, "requests of the newcomer that have begun", len(h.begun), 0)
	close(h.proceed)
	for _, v := range append(busy, late) {
		expect.Equal(t, "GET /wait", v.hears(), 200)
	}
}

func TestClosedListenerEndsTheWaitForRoom(t *testing.T) {
	door := frontdoor.New(frontdoor.Config{MaxConnections: 1})
	l := listen(t)
	around := door.Around(l)
	for range 2 {
		conn, err := net.Dial("tcp", l.Addr().String())
		expect.NoError(t, "net.Dial", err)
		defer conn.Close()
	}
	first, err := around.Accept()
	expect.NoError(t, "the first Accept", err)
	defer first.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := around.Accept()
		ended <- err
	}()
	expect.Error(t, "Close of the listener", around.Close(), nil)
	if err := <-ended; err == nil {
		t.Error("the second Accept: got a connection, want an error")
	}
}

func TestConnectionThatWasTakenOverCountsUntilItIsGone(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 1})
	h.visit().ask("/keep")
	kept := <-h.kept
	late := h.visit()
	late.ask("/")
	expect.Eventually(t, "it stands at the door", h.crowded)
	if _, err := kept.Write([]byte("x")); err != nil {
		t.Errorf("writing to the connection that was taken over: %v, want it not closed for another", err)
	}
	h.door.Gone(kept)
	_ = kept.Close()
	expect.Equal(t, "GET / of the newcomer", late.hears(), 200)
}

func TestHeadersAreBoundedInTime(t *testing.T) {
	h := open(t, frontdoor.Config{HeaderTimeout: 100 * time.Millisecond})
	slow := h.visit()
	slow.say("GET / HTTP/1.1\r\nHost: x\r\n")
	if got := slow.hears(); got != 0 && got != 408 {
		t.Errorf("a header that does not end: got %d, want 408 or the end of the connection", got)
	}
}

func TestUnusedConnectionIsClosed(t *testing.T) {
	h := open(t, frontdoor.Config{HeaderTimeout: time.Hour, IdleTimeout: 150 * time.Millisecond})
	idle := h.visit()
	idle.isAnswered()
	idle.ends("an unused connection")
}

func TestHeadersAreBoundedInSizeAndNumber(t *testing.T) {
	h := open(t, frontdoor.Config{HeaderTimeout: time.Hour, MaxHeader: 8 << 10})
	for what, row := range map[string]struct {
		header string
		want   int
	}{
		"as many as may be": {strings.Repeat("A: b\r\n", 256), 200},
		"one too many":      {strings.Repeat("A: b\r\n", 257), 431},
		"different names":   {many(257), 431},
		"as long as may be": {"A: " + strings.Repeat("b", 7<<10) + "\r\n", 200},
		"too long":          {"A: " + strings.Repeat("b", 13<<10) + "\r\n", 431},
		"many and too long": {many(3000), 431},
	} {
		v := h.visit()
		v.say("GET / HTTP/1.1\r\nHost: x\r\n" + row.header + "\r\n")
		expect.Equal(t, "header fields, "+what, v.hears(), row.want)
	}
	line := h.visit()
	line.ask("/" + strings.Repeat("a", 13<<10))
	expect.Equal(t, "a request line that is too long", line.hears(), 431)
}

func many(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "A%d: b\r\n", i)
	}
	return all.String()
}
