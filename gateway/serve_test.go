package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// served is a gateway that listens by itself.
type served struct {
	*rig

	own   string
	stop  context.CancelFunc
	ended chan error
}

// serve starts a gateway that stops in good order, however long that takes, unless set says how
// long it may.
func serve(t *testing.T, upstream, routes string, set ...func(*Config)) *served {
	t.Helper()
	s := &served{rig: &rig{t: t, log: &logtest.Text{}, client: newClient(t)}, ended: make(chan error, 1)}
	set = append([]func(*Config){func(c *Config) { c.StopTimeout = patience }}, set...)
	s.g = s.open(upstream, routes, set...)
	clients, admin := listen(t), listen(t)
	s.url, s.own = "http://"+clients.Addr().String(), "http://"+admin.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(stop)
	go func() { s.ended <- s.g.Serve(ctx, clients, admin) }()
	return s
}

func (s *served) end() error {
	s.t.Helper()
	s.stop()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		s.t.Fatalf("waited %v in vain: Serve ends once its context has", patience)
		return nil
	}
}

// wantEnd stops the gateway and wants it to end in good order.
func (s *served) wantEnd() {
	s.t.Helper()
	expect.Error(s.t, "Serve", s.end(), nil)
}

// side asks the gateway's own side.
func (s *served) side(path string) (status int, body string) {
	s.t.Helper()
	response, err := s.client.Get(s.own + path)
	if err != nil {
		s.t.Fatalf("the gateway's own side: %v", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("reading the answer to GET %s: %v", path, err)
	}
	return response.StatusCode, string(text)
}

func (s *served) readiness() (status int, ready Readiness) {
	s.t.Helper()
	status, body := s.side("/readyz")
	if err := json.Unmarshal([]byte(body), &ready); err != nil {
		s.t.Fatalf("GET /readyz: got %d %q: %v", status, body, err)
	}
	return status, ready
}

func TestStopDrainsFinishesGuardedWorkAndLeavesNothingBehind(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-proceed
		w.WriteHeader(http.StatusCreated)
	})
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	s := serve(t, upstream.URL, payments, on(store), func(c *Config) { c.DrainDelay = 100 * time.Millisecond })
	status, ready := s.readiness()
	expect.Equal(t, "GET /readyz", status, 200)
	expect.Equal(t, "lengths of version and incarnation", [2]int{len(ready.Version), len(ready.Incarnation)}, [2]int{12, 40})
	expect.Equal(t, "GET /readyz", ready, Readiness{Ready: true, Store: "embedded", Routes: 1, Unmatched: "refuse", Unguarded: 1, UnguardedWideCount: 1, UnguardedWide: []string{"/"}}, cmpopts.IgnoreFields(Readiness{}, "Version", "Incarnation", "LoadedAt"))
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.send(ctx, "POST", "/payments", "x", "Idempotency-Key: a") // it hangs up
	}()
	<-begun
	hangUp()
	<-gone
	s.stop()
	expect.Eventually(t, "/readyz says that it is stopping", func() bool {
		status, ready := s.readiness()
		return status == 503 && ready.Reason == "stopping"
	})
	status, _ = s.side("/livez")
	expect.Equal(t, "GET /livez while draining", status, 200)
	s.refused()
	select {
	case err := <-s.ended:
		t.Fatalf("Serve ended before the guarded work did: %v", err)
	default:
	}
	expect.Contains(t, "the log of a stop with one request under way", s.log.String(), `msg="stopping: `, "requests=1 drain_delay=100ms stop_timeout="+patience.String())
	close(proceed)
	s.wantEnd()
	other := start(t, upstream.URL, payments, on(store))
	other.wantPaid(other.do("POST", "/payments", "x", "Idempotency-Key: a"), "", true)
	upstream.wantPaid(t, 1)
}

// When the time to stop is over, guarded work is ended: its token is in doubt at once, not when its
// lease has lapsed, and its client is told.
func TestStopEndsGuardedWorkThatTakesTooLong(t *testing.T) {
	begun := make(chan struct{})
	upstream := newShop(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	s := serve(t, upstream.URL, payments, on(store), func(c *Config) { c.StopTimeout = 200 * time.Millisecond })
	token := s.issue()
	told := make(chan answer, 1)
	go func() {
		defer close(told)
		told <- s.do("POST", "/payments", "x", "Idempotency-Token: "+token)
	}()
	<-begun
	expect.Error(t, "Serve", s.end(), context.DeadlineExceeded)
	s.wantCode(<-told, api.OutcomeUnknown)
	other := start(t, upstream.URL, payments, on(store))
	other.wantState(token, idempotency.StateInDoubt)
}

// echoing is an upgraded connection through a gateway whose upstream sends back what it is sent.
func echoing(t *testing.T, set ...func(*Config)) (s *served, echo func() error, hangUp func()) {
	t.Helper()
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accepting the WebSocket: %v", err)
			return
		}
		defer func() { _ = socket.CloseNow() }()
		for err == nil {
			var text []byte
			if _, text, err = socket.Read(context.Background()); err == nil {
				err = socket.Write(context.Background(), websocket.MessageText, text)
			}
		}
	})
	s = serve(t, upstream.URL, payments, set...)
	options := &websocket.DialOptions{HTTPHeader: http.Header{"X-Request-Id": {"w-1"}}}
	socket, response, err := websocket.Dial(t.Context(), s.url+"/socket", options)
	if err != nil {
		t.Fatalf("opening a WebSocket: %v", err)
	}
	expect.Equal(t, "X-Request-Id of the answer", response.Header.Get("X-Request-Id"), "w-1")
	hangUp = func() { _ = socket.CloseNow() }
	t.Cleanup(hangUp)
	echo = func() error {
		if err := socket.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		_, _, err := socket.Read(t.Context())
		return err
	}
	return s, echo, hangUp
}

func TestUpgradedConnectionGoesOnWhileTheGatewayStops(t *testing.T) {
	s, echo, hangUp := echoing(t)
	expect.Error(t, "echo", echo(), nil)
	s.stop()
	s.refused()
	expect.Error(t, "echo while the gateway stops", echo(), nil)
	hangUp()
	s.wantEnd()
}

func TestStopClosesUpgradedConnectionsAtItsEnd(t *testing.T) {
	s, echo, _ := echoing(t, func(c *Config) { c.StopTimeout = 200 * time.Millisecond })
	expect.Error(t, "echo", echo(), nil)
	s.wantEnd()
	if err := echo(); err == nil {
		t.Error("echo after the end: got an answer, want the connection closed")
	}
}

// refused waits until new connections are refused.
func (s *served) refused() {
	s.t.Helper()
	expect.Eventually(s.t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// drain is how long a gateway that stops still takes connections, in a test whose clients all have
// to ask once more in that time.
const drain = 3 * time.Second

// Clients that keep their connections are told that they end, in an answer, before they do.
func TestStopCutsNoClientThatKeepsItsConnection(t *testing.T) {
	t.Parallel() // it waits
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, func(c *Config) { c.DrainDelay = drain })
	var clients sync.WaitGroup
	for i := range 16 {
		path := []string{"/open", "/idempotency-policy"}[i%2]
		conn := s.dial()
		clients.Go(func() { asksUntilTold(t, conn, path) })
	}
	s.wantEnd()
	clients.Wait()
}

// asksUntilTold asks again and again until an answer says that the connection ends with it, and
// wants it to end then.
func asksUntilTold(t *testing.T, conn net.Conn, path string) {
	reader := bufio.NewReader(conn)
	for {
		say(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Errorf("GET %s on a connection that is kept: %v, want an answer", path, err)
			return
		}
		_, err = io.Copy(io.Discard, response.Body)
		expect.Error(t, "reading the answer to GET "+path, err, nil)
		response.Body.Close()
		if response.Close {
			_, err := reader.ReadByte()
			expect.Error(t, "reading on", err, io.EOF)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	r := &rig{t: t, log: &logtest.Text{}}
	g := r.open("http://127.0.0.1:1", payments)
	closed, admin := listen(t), listen(t)
	closed.Close()
	expect.Error(t, "Serve on a closed listener", g.Serve(t.Context(), closed, admin), net.ErrClosed)
}

func TestStoreThatIsAwayIsNotReadyAndNothingRuns(t *testing.T) {
	redis := redistest.Start(t)
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, on(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 5 * time.Second})))
	status, ready := s.readiness()
	expect.Equal(t, "GET /readyz", status, 200)
	expect.Equal(t, "GET /readyz: store", ready.Store, "standalone")
	redis.Kill()
	s.g.health.Forget()
	status, ready = s.readiness()
	expect.Equal(t, "GET /readyz without Redis", status, 503)
	expect.Equal(t, "GET /readyz without Redis: ready", ready.Ready, false)
	expect.Equal(t, "GET /readyz without Redis: a reason is told", ready.Reason != "", true)
	s.wantCode(s.pay("a"), api.StoreUnavailable)
	upstream.wantPaid(t, 0)
	s.wantStatus(s.do("GET", "/other", ""), 201)
	redis.Restart()
	expect.Eventually(t, "it recovers by itself", func() bool { return s.pay("a").status == 201 })
	upstream.wantPaid(t, 2)
	s.wantEnd()
}

// An answer that cannot be recorded, since the store went away, is the truth all the same; it is
// recorded when the store is back.
func TestStoreThatGoesAwayWhileTheUpstreamWorks(t *testing.T) {
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		redis.Kill()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	})
	r := start(t, upstream.URL, payments, on(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 5 * time.Second})))
	r.wantPaid(r.pay("a"), "paid", false)
	redis.Restart()
	expect.Eventually(t, "the answer is recorded", func() bool { return r.pay("a").status == 201 })
	r.wantPaid(r.pay("a"), "paid", true)
	upstream.wantPaid(t, 1)
}
