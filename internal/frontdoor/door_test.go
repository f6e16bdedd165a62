package frontdoor_test

import (
	"bufio"
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
	"github.com/coatcheck/coatcheck/internal/logtest"
)

// net/http keeps a connection that it has refused for half a second, so that the refusal is read before the end.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// house is a server behind a door. A request for /wait is answered when the test says so, one for /keep takes its connection over.
type house struct {
	t       *testing.T
	door    *frontdoor.Door
	addr    string
	log     logtest.Text
	begun   chan struct{}
	proceed chan struct{}
	kept    chan net.Conn
}

func open(t *testing.T, config frontdoor.Config) *house {
	t.Helper()
	h := &house{t: t, begun: make(chan struct{}, 10), proceed: make(chan struct{}), kept: make(chan net.Conn, 10)}
	config.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	h.door = frontdoor.New(config)
	web := h.door.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wait":
			h.begun <- struct{}{}
			<-h.proceed
		case "/keep":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			h.kept <- conn
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(h.door.Around(l)) })
	t.Cleanup(func() {
		_ = web.Close()
		serving.Wait()
	})
	return h
}

type visitor struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func (h *house) visit() *visitor {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // only tells a hang
		h.t.Fatal(err)
	}
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
			v.t.Fatal("neither an answer nor an end")
		}
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestOneMoreIsLetInForTheOneThatIsQuietForLongest(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 3})
	first, second, third := h.visit(), h.visit(), h.visit()
	for _, v := range []*visitor{first, second, third, first} { // so that the second is quiet for longest
		if v.ask("/"); v.hears() != 200 {
			t.Fatal("no answer")
		}
		eventually(t, "the connection is quiet", func() bool { return h.door.Quiet() == h.door.Inside() })
	}
	fourth := h.visit()
	if fourth.ask("/"); fourth.hears() != 200 {
		t.Error("nobody had to go for the fourth")
	}
	if second.hears() != 0 {
		t.Error("the one that was quiet for longest is still there")
	}
	for i, v := range []*visitor{first, third, fourth} {
		if v.ask("/"); v.hears() != 200 {
			t.Errorf("%d had to go", i)
		}
	}
	if n := strings.Count(h.log.String(), "as many connections are open as may be"); n != 1 {
		t.Errorf("told %d times:\n%s", n, h.log.String())
	}
}

// A client that says nothing, or its header letter by letter, is as quiet as one between two requests.
func TestThoseThatNeverFinishARequestGoFirst(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 2, HeaderTimeout: time.Hour})
	silent, slow := h.visit(), h.visit()
	slow.say("GET / HTTP/1.1\r\nHos")
	eventually(t, "both are in", func() bool { return h.door.Quiet() == 2 })
	for range 20 {
		v := h.visit()
		if v.ask("/"); v.hears() != 200 {
			t.Fatal("no answer")
		}
	}
	if silent.hears() != 0 || slow.hears() != 0 {
		t.Error("they are still there")
	}
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
	eventually(t, "it stands at the door", func() bool { return strings.Contains(h.log.String(), "as many connections are open") })
	if n := h.door.Inside(); n != 2 || len(h.begun) > 0 {
		t.Errorf("%d are inside", n)
	}
	close(h.proceed)
	for _, v := range append(busy, late) {
		if v.hears() != 200 {
			t.Error("no answer")
		}
	}
}

func TestClosedListenerEndsTheWaitForRoom(t *testing.T) {
	door := frontdoor.New(frontdoor.Config{MaxConnections: 1})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	around := door.Around(l)
	for range 2 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first, err := around.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := around.Accept()
		ended <- err
	}()
	if err := around.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a second one is in")
	}
}

func TestConnectionThatWasTakenOverCountsUntilItIsGone(t *testing.T) {
	h := open(t, frontdoor.Config{MaxConnections: 1})
	h.visit().ask("/keep")
	kept := <-h.kept
	late := h.visit()
	late.ask("/")
	eventually(t, "it stands at the door", func() bool { return strings.Contains(h.log.String(), "as many connections are open") })
	if _, err := kept.Write([]byte("x")); err != nil {
		t.Errorf("it was closed for another: %v", err)
	}
	h.door.Gone(kept)
	_ = kept.Close()
	if late.hears() != 200 {
		t.Error("no room")
	}
}

func TestHeadersAreBoundedInTimeSizeAndNumber(t *testing.T) {
	h := open(t, frontdoor.Config{HeaderTimeout: 100 * time.Millisecond, IdleTimeout: 150 * time.Millisecond, MaxHeader: 8 << 10})
	slow := h.visit()
	slow.say("GET / HTTP/1.1\r\nHost: x\r\n")
	if got := slow.hears(); got != 0 && got != 408 {
		t.Errorf("a header that does not end: %d", got)
	}
	idle := h.visit()
	if idle.ask("/"); idle.hears() != 200 || idle.hears() != 0 {
		t.Error("an unused connection is kept")
	}
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
		if v.say("GET / HTTP/1.1\r\nHost: x\r\n" + row.header + "\r\n"); v.hears() != row.want {
			t.Errorf("%s: not %d", what, row.want)
		}
	}
	line := h.visit()
	if line.ask("/" + strings.Repeat("a", 13<<10)); line.hears() != 431 {
		t.Error("a request line that is too long")
	}
}

func many(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "A%d: b\r\n", i)
	}
	return all.String()
}
