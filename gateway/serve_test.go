package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/logtest"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// served is a gateway that listens by itself.
type served struct {
	*rig

	admin string
	stop  context.CancelFunc
	ended chan error
}

func serve(t *testing.T, upstream, routes string, set ...func(*Config)) *served {
	t.Helper()
	s := &served{rig: &rig{t: t, log: &logtest.Text{}, client: newClient(t)}, ended: make(chan error, 1)}
	s.g = s.open(upstream, routes, set...)
	var listeners []net.Listener
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, listener)
	}
	s.url, s.admin = "http://"+listeners[0].Addr().String(), "http://"+listeners[1].Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(stop)
	go func() { s.ended <- s.g.Serve(ctx, listeners[0], listeners[1]) }()
	return s
}

func (s *served) end() error {
	s.t.Helper()
	s.stop()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(20 * time.Second):
		s.t.Fatal("Serve does not end")
		return nil
	}
}

// side asks the gateway's own side.
func (s *served) side(path string) (status int, body string) {
	s.t.Helper()
	response, err := s.client.Get(s.admin + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (s *served) readiness() (status int, ready Readiness) {
	s.t.Helper()
	status, body := s.side("/readyz")
	if err := json.Unmarshal([]byte(body), &ready); err != nil {
		s.t.Fatalf("%v: %s", err, body)
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
	s := serve(t, upstream.URL, payments, on(store), func(c *Config) { c.DrainDelay = time.Second })
	if status, ready := s.readiness(); status != 200 || !ready.Ready || ready.Store != "embedded" || ready.Routes != 1 || len(ready.Version) != 12 || len(ready.Incarnation) != 40 {
		t.Errorf("%d %+v", status, ready)
	}
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
	eventually(t, "/readyz says that it is stopping", func() bool {
		status, ready := s.readiness()
		return status == 503 && ready.Reason == "stopping"
	})
	if status, _ := s.side("/livez"); status != 200 {
		t.Errorf("/livez while draining: %d", status)
	}
	s.refused()
	select {
	case err := <-s.ended:
		t.Fatalf("Serve ended before the guarded work did: %v", err)
	default:
	}
	close(proceed)
	if err := s.end(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	other := start(t, upstream.URL, payments, on(store))
	if a := other.do("POST", "/payments", "x", "Idempotency-Key: a"); a.status != 201 || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", a.status, a.body)
	}
	upstream.wantPaid(t, 1)
}

// When the time to stop is over, guarded work is ended: its token is in doubt at once, not when its lease has lapsed, and its client is told.
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
	if err := s.end(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve: %v", err)
	}
	s.wantCode(<-told, wire.OutcomeUnknown)
	other := start(t, upstream.URL, payments, on(store))
	if state := other.state(token); state != idempotency.InDoubt {
		t.Errorf("the token is %s", state)
	}
}

func TestStopClosesUpgradedConnectionsAtItsEnd(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
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
	s := serve(t, upstream.URL, payments, func(c *Config) { c.StopTimeout = time.Second })
	socket, _, err := websocket.Dial(t.Context(), s.url+"/socket", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	echo := func() error {
		if err := socket.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		_, _, err := socket.Read(t.Context())
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.refused()
	if err := echo(); err != nil {
		t.Errorf("while the gateway stops: %v", err)
	}
	if err := s.end(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := echo(); err == nil {
		t.Error("the connection is still open")
	}
}

// refused waits until new connections are refused.
func (s *served) refused() {
	s.t.Helper()
	eventually(s.t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	r := &rig{t: t, log: &logtest.Text{}}
	g := r.open("http://127.0.0.1:1", payments)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Serve(t.Context(), closed, admin); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}

func TestStoreThatIsAwayIsNotReadyAndNothingRuns(t *testing.T) {
	redis := redistest.Start(t)
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, on(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 500 * time.Millisecond})))
	if status, ready := s.readiness(); status != 200 || ready.Store != "standalone" {
		t.Errorf("%d %+v", status, ready)
	}
	redis.Kill()
	if status, ready := s.readiness(); status != 503 || ready.Ready || ready.Reason == "" {
		t.Errorf("%d %+v", status, ready)
	}
	s.wantCode(s.pay("a"), wire.StoreUnavailable)
	upstream.wantPaid(t, 0)
	if a := s.do("GET", "/other", ""); a.status != 201 {
		t.Errorf("what is not guarded: %d %s", a.status, a.body)
	}
	redis.Restart()
	eventually(t, "it recovers by itself", func() bool { return s.pay("a").status == 201 })
	upstream.wantPaid(t, 2)
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// An answer that can not be recorded, since the store went away, is the truth all the same; it is recorded when the store is back.
func TestStoreThatGoesAwayWhileTheUpstreamWorks(t *testing.T) {
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		redis.Kill()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	})
	r := start(t, upstream.URL, payments, on(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 500 * time.Millisecond})))
	r.wantPaid(r.pay("a"), "paid", false)
	redis.Restart()
	eventually(t, "the answer is recorded", func() bool { return r.pay("a").status == 201 })
	r.wantPaid(r.pay("a"), "paid", true)
	upstream.wantPaid(t, 1)
}
