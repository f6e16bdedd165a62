package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Before anything is written a connection that is used again is looked at: one that the service has
// closed took no byte.
func TestConnectionThatIsGoneTakesNoByte(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "Listen", err)
	defer listener.Close()
	for name, row := range map[string]struct {
		reused bool
		after  func(far net.Conn) error
		want   error
	}{
		"closed":                     {true, net.Conn.Close, errGone},
		"closed, and just dialed":    {false, net.Conn.Close, nil},
		"open":                       {true, func(net.Conn) error { return nil }, nil},
		"with an answer to no asker": {true, func(far net.Conn) error { _, err := far.Write([]byte("HTTP/1.1 200 OK\r\n")); return err }, errGone},
	} {
		t.Run(name, func(t *testing.T) {
			near, err := net.Dial("tcp", listener.Addr().String())
			expect.NoError(t, "Dial", err)
			defer near.Close()
			far, err := listener.Accept()
			expect.NoError(t, "Accept", err)
			defer far.Close()
			conn, used := countConn(near), &contact{}
			used.got(httptrace.GotConnInfo{Conn: conn, Reused: row.reused})
			expect.NoError(t, "what the service does", row.after(far))
			if row.want != nil {
				expect.Eventually(t, "the system knows of it", func() bool { return isGone(near) })
			}
			_, err = conn.Write([]byte("a request"))
			expect.Error(t, "Write", err, row.want)
			expect.Equal(t, "whether nothing was written", used.untouched(), row.want != nil)
		})
	}
}

// late is a connection whose end net/http's reader learns of a while after it.
type late struct{ *net.TCPConn }

func (l late) Read(into []byte) (int, error) {
	n, err := l.TCPConn.Read(into)
	if errors.Is(err, io.EOF) {
		time.Sleep(20 * time.Millisecond)
	}
	return n, err
}

// A service that closes each connection without saying so gets each request once and whole, and no
// client is told to ask again because the connection before was closed.
func TestRequestThatTookNoByteIsSentOnANewConnection(t *testing.T) {
	const keys = 100
	body := strings.Repeat("pay ", 1000)
	var whole atomic.Int64
	upstream := hear(t, func(conn net.Conn) {
		defer conn.Close()
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		if got, err := io.ReadAll(request.Body); err == nil && string(got) == body {
			whole.Add(1)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
	})
	r := start(t, upstream, payments, quiet)
	guarded := r.g.transports[1]
	dial := guarded.DialContext
	guarded.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if counted, is := conn.(*countedConn); is {
			counted.Conn = late{counted.Conn.(*net.TCPConn)}
		}
		return conn, err
	}
	answered := int64(0)
	for n := range keys {
		a := r.do("POST", "/payments", body, fmt.Sprint("Idempotency-Key: ", n))
		if a.status == http.StatusCreated {
			answered++
			continue
		}
		r.wantCode(a, api.OutcomeUnknown) // the service closed it just after the gateway had looked
	}
	expect.Equal(t, "requests that came whole, of those with an answer", whole.Load(), answered)
}

// tries is a transport whose connections take bytes of a request, and then fail.
type tries struct {
	*testing.T

	kept  []bool  // whether the connection of each try has carried a request before
	takes []int64 // bytes of each try
	asked int
}

func (f *tries) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	expect.NoError(f, "ReadAll", err)
	expect.Equal(f, "the body of a try", string(body), "pay")
	conn := countConn(nil)
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: conn, Reused: f.kept[f.asked]})
	conn.written.Add(f.takes[f.asked])
	f.asked++
	return nil, io.EOF
}

// net/http gives up where its reader has learned of the end first: the gateway goes on, while only
// kept connections fail that have taken nothing.
func TestRequestGoesOnWhileOnlyKeptConnectionsTookNothing(t *testing.T) {
	for name, row := range map[string]struct {
		kept  []bool
		takes []int64
		once  bool
		want  int
	}{
		"two kept ones and a new one": {[]bool{true, true, false, true}, []int64{0, 0, 0, 0}, false, 3},
		"a kept one took a byte":      {[]bool{true, true, false}, []int64{0, 1, 0}, false, 2},
		"a new one":                   {[]bool{false, false}, []int64{0, 0}, false, 1},
		"a body that is read once":    {[]bool{true, false}, []int64{0, 0}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			x := &exchange{}
			ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), exchangeKey{}, x), &httptrace.ClientTrace{GotConn: x.contact.got})
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service", strings.NewReader("pay"))
			expect.NoError(t, "NewRequest", err)
			if row.once {
				r.GetBody = nil
			}
			failing := &tries{T: t, kept: row.kept, takes: row.takes}
			_, err = anew{failing}.RoundTrip(r)
			expect.Error(t, "RoundTrip", err, io.EOF)
			expect.Equal(t, "tries", failing.asked, row.want)
		})
	}
}
