package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
			if row.want != nil {
				_, err = conn.Write([]byte("the alert with which TLS closes"))
				expect.Error(t, "Write after one that took nothing", err, row.want)
			}
			expect.Equal(t, "whether nothing was written", used.untouched(), row.want != nil)
		})
	}
}

// A connection of HTTP/2 carries other answers as well, which may just have come: it has not gone.
func TestConnectionOfHTTP2ThatHasMoreToReadIsNotGone(t *testing.T) {
	like := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer like.Close()
	listener := listen(t)
	defer listener.Close()
	trusting := like.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	for protocol, want := range map[string]error{"h2": nil, "http/1.1": errGone} {
		t.Run(protocol, func(t *testing.T) {
			plain, err := net.Dial("tcp", listener.Addr().String())
			expect.NoError(t, "Dial", err)
			defer plain.Close()
			accepted, err := listener.Accept()
			expect.NoError(t, "Accept", err)
			defer accepted.Close()
			config := trusting.Clone()
			config.NextProtos, config.ServerName = []string{protocol}, "example.com"
			near := tls.Client(countConn(plain), config)
			far := tls.Server(accepted, &tls.Config{Certificates: like.TLS.Certificates, NextProtos: config.NextProtos, MinVersion: tls.VersionTLS12})
			shaken := make(chan error, 1)
			go func() { shaken <- far.HandshakeContext(t.Context()) }()
			expect.NoError(t, "the client's handshake", near.HandshakeContext(t.Context()))
			expect.NoError(t, "the server's handshake", <-shaken)
			say(far, "of an answer")
			expect.Eventually(t, "it is there to be read", func() bool { return isGone(plain) })
			new(contact).got(httptrace.GotConnInfo{Conn: near, Reused: true})
			_, err = near.Write([]byte("a request"))
			expect.Error(t, "Write", err, want)
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

// tries is a transport whose connections take bytes of a request, and then fail. After those no
// connection can be made.
type tries struct {
	*testing.T

	body  string
	kept  []bool  // whether the connection of each try has carried a request before
	takes []int64 // bytes of each try
	asked int
}

func (f *tries) RoundTrip(r *http.Request) (*http.Response, error) {
	f.asked++
	if f.asked > 9 {
		f.Fatalf("the request was tried %d times", f.asked)
	}
	expect.Equal(f, "whether there is a body", r.Body != nil, f.body != "")
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		expect.NoError(f, "ReadAll", err)
		expect.Equal(f, "the body of a try", string(body), f.body)
	}
	if f.asked > len(f.kept) {
		return nil, io.EOF
	}
	conn := countConn(nil)
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: conn, Reused: f.kept[f.asked-1]})
	conn.written.Add(f.takes[f.asked-1])
	return nil, io.EOF
}

// net/http gives up where its reader has learned of the end first: the gateway goes on, while only
// kept connections fail that have taken nothing.
func TestRequestGoesOnWhileOnlyKeptConnectionsTookNothing(t *testing.T) {
	for name, row := range map[string]struct {
		kept  []bool
		takes []int64
		body  string
		once  bool
		want  int
	}{
		"two kept ones and a new one":       {[]bool{true, true, false, true}, []int64{0, 0, 0, 0}, "pay", false, 3},
		"a kept one took a byte":            {[]bool{true, true, false}, []int64{0, 1, 0}, "pay", false, 2},
		"a new one":                         {[]bool{false, false}, []int64{0, 0}, "pay", false, 1},
		"a body that is read once":          {[]bool{true, false}, []int64{0, 0}, "pay", true, 1},
		"no body":                           {[]bool{true, false}, []int64{0, 0}, "", false, 2},
		"a kept one of a service that ends": {[]bool{true}, []int64{0}, "pay", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			x := &exchange{}
			ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), exchangeKey{}, x), &httptrace.ClientTrace{GotConn: x.contact.got})
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service", strings.NewReader(row.body))
			expect.NoError(t, "NewRequest", err)
			if row.body == "" {
				r.Body = nil // as ReverseProxy sends none
			}
			if row.once {
				r.GetBody = nil
			}
			failing := &tries{T: t, body: row.body, kept: row.kept, takes: row.takes}
			_, err = anew{failing}.RoundTrip(r)
			expect.Error(t, "RoundTrip", err, io.EOF)
			expect.Equal(t, "tries", failing.asked, row.want)
		})
	}
}
