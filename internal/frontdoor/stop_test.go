package frontdoor_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// inn is a server behind a door whose connections are pipes, for tests in a bubble. It reads each
// body, and answers /wait when the test says so.
type inn struct {
	t       *testing.T
	door    *frontdoor.Door
	web     *http.Server
	arrive  chan net.Conn
	end     chan struct{}
	proceed chan struct{}
}

func openInn(t *testing.T) *inn {
	t.Helper()
	n := &inn{t: t, door: frontdoor.New(frontdoor.Config{}), arrive: make(chan net.Conn), end: make(chan struct{}), proceed: make(chan struct{})}
	n.web = n.door.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/wait" {
			<-n.proceed
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = n.web.Serve(n.door.Around(n)) })
	t.Cleanup(func() {
		_ = n.door.Cut(n.web)
		serving.Wait()
	})
	return n
}

func (n *inn) Accept() (net.Conn, error) {
	select {
	case conn := <-n.arrive:
		return conn, nil
	case <-n.end:
		return nil, net.ErrClosed
	}
}

func (n *inn) Close() error {
	close(n.end)
	return nil
}

func (n *inn) Addr() net.Addr { return &net.UnixAddr{} }

func (n *inn) visit() *visitor {
	ours, theirs := net.Pipe()
	n.arrive <- theirs
	n.t.Cleanup(func() { _ = ours.Close() })
	return &visitor{ours, n.t, bufio.NewReader(ours)}
}

// stop stops the inn, and wants that to take a time at most.
func (n *inn) stop(within time.Duration, want error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begun := time.Now()
	expect.Error(n.t, "Stop", n.door.Stop(ctx, n.web), want)
	if took := time.Since(begun); took > within {
		n.t.Errorf("Stop took %v, want %v at most", took, within)
	}
}

func TestStopEndsUnusedConnectionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openInn(t)
		idle := n.visit()
		idle.isAnswered()
		synctest.Wait()
		n.stop(0, nil)
		idle.ends("an unused connection")
	})
}

// What a client has begun to send is answered, on a new connection and on one that is kept.
func TestStopWaitsForRequestsThatAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openInn(t)
		fresh, half, kept := n.visit(), n.visit(), n.visit()
		kept.isAnswered()
		kept.say("GET / HTTP/1.1\r\nHo")
		half.say("GET / HTTP/1.1\r\nHo")
		synctest.Wait() // what was said is noted now, not only read
		var others sync.WaitGroup
		others.Go(func() {
			time.Sleep(time.Millisecond) // Stop waits by then
			for _, v := range []*visitor{half, kept} {
				v.say("st: x\r\n\r\n")
				expect.Equal(t, "a request that had begun", v.hears(), 200)
				v.ends("its client")
			}
			fresh.isAnswered()
			fresh.ends("a client that had just connected")
		})
		n.stop(time.Second, nil)
		others.Wait()
	})
}

// net/http reports that a request has come before it looks whether the server is being shut down.
func TestStopWaitsForARequestThatHasNotReachedItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openInn(t)
		note := n.web.ConnState
		n.web.ConnState = func(conn net.Conn, state http.ConnState) {
			note(conn, state)
			if state == http.StateActive {
				time.Sleep(lookTime)
			}
		}
		v := n.visit()
		synctest.Wait()
		var asking sync.WaitGroup
		asking.Go(func() {
			time.Sleep(time.Millisecond) // Stop waits by then
			v.isAnswered()
			v.ends("its client")
		})
		n.stop(time.Second, nil)
		asking.Wait()
	})
}

// lookTime is how long a connection may stand between two lines of net/http.
const lookTime = 10 * time.Millisecond

func TestStopIsNotHeldByWhatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openInn(t)
		n.visit()
		n.visit().say("GET / HTTP/1.1\r\nHo")
		silent := n.visit()
		silent.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234")
		slow := n.visit()
		slow.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		var sending sync.WaitGroup
		sending.Go(func() {
			for range 10 { // ten letters in six seconds
				time.Sleep(600 * time.Millisecond)
				slow.say("a")
			}
			expect.Equal(t, "a body that goes on coming", slow.hears(), 200)
		})
		sending.Go(func() { expect.Equal(t, "a body that does not come whole", silent.hears(), 400) })
		synctest.Wait()
		n.stop(7*time.Second, nil)
		sending.Wait()
	})
}

func TestStopReportsARequestThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openInn(t)
		v := n.visit()
		v.ask("/wait")
		synctest.Wait()
		n.stop(time.Minute, context.DeadlineExceeded)
		expect.Error(t, "Cut", n.door.Cut(n.web), nil)
		v.ends("a client whose request was lost")
		close(n.proceed)
	})
}

// While the door drains, who keeps a connection is told that it ends before it does.
func TestKeptConnectionsEndWithAnAnswerWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openInn(t)
		var clients sync.WaitGroup
		for range 16 {
			v := n.visit()
			clients.Go(func() { v.asksUntilTold() })
		}
		time.Sleep(time.Second)
		n.door.Drain()
		time.Sleep(time.Second)
		n.stop(0, nil)
		clients.Wait()
	})
}

// asksUntilTold asks again and again until an answer says that the connection ends with it, and
// wants it to end then.
func (v *visitor) asksUntilTold() {
	for {
		v.ask("/")
		answer, err := http.ReadResponse(v.reader, nil)
		if err != nil {
			v.t.Errorf("a client that keeps its connection: %v, want an answer", err)
			return
		}
		_, err = io.Copy(io.Discard, answer.Body)
		expect.Error(v.t, "reading an answer", err, nil)
		answer.Body.Close()
		if answer.Close {
			v.ends("a client that was told so")
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestDrainSendsHTTP2ClientsElsewhere(t *testing.T) {
	example := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer example.Close()
	door := frontdoor.New(frontdoor.Config{})
	web := door.Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	l := listen(t)
	var serving sync.WaitGroup
	config := &tls.Config{Certificates: example.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	serving.Go(func() { _ = web.Serve(door.Around(tls.NewListener(frontdoor.Plain(l), config))) })
	defer serving.Wait()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: example.Client().Transport.(*http.Transport).TLSClientConfig, ForceAttemptHTTP2: true,
	}}
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
	defer client.CloseIdleConnections()
	ask := func() (reused bool) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://"+l.Addr().String(), nil)
		answer, err := client.Do(request)
		expect.NoError(t, "GET over HTTP/2", err)
		answer.Body.Close()
		expect.Equal(t, "protocol", answer.Proto, "HTTP/2.0")
		return reused
	}
	ask()
	expect.Equal(t, "the connection is used again", ask(), true)
	door.Drain()
	expect.Eventually(t, "a client of HTTP/2 takes another connection", func() bool { return !ask() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.Error(t, "Stop", door.Stop(ctx, web), nil)
}
