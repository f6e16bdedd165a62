package server_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/apitest"
	"github.com/coatcheck/coatcheck/internal/logtest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// stoppable is a service that listens by itself, with a route whose requests wait for the test.
type stoppable struct {
	service
	stop    context.CancelFunc
	ended   chan error
	begun   chan struct{} // one for each request that waits
	proceed chan struct{} // closed: they go on
}

func listen(t *testing.T, config server.Config) *stoppable {
	t.Helper()
	s := &stoppable{ended: make(chan error, 1), begun: make(chan struct{}, 10), proceed: make(chan struct{})}
	s.log = &logtest.Text{}
	config.Logger = s.log.Logger()
	s.server, s.client = server.New(config), newClient(t)
	s.client.Transport = apitest.RoundTripper(t, s.client.Transport, func(path string) bool { return path == "/wait" })
	s.server.Handle("GET", "/wait", func(w http.ResponseWriter, _ *http.Request) {
		s.begun <- struct{}{}
		<-s.proceed
		_, _ = w.Write([]byte("done"))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(stop)
	go func() { s.ended <- s.server.Serve(ctx, listener) }()
	return s
}

func (s *stoppable) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("Serve does not end")
		return nil
	}
}

func TestStopDrainsFinishesAndLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := redisstore.Open(t.Context(), "embedded:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := listen(t, server.Config{Store: store, DrainDelay: time.Second})
	defer s.client.CloseIdleConnections()
	if ready := must[wire.Readiness](t, &s.service, 200, "GET", "/readyz", ""); !ready.Ready || ready.Store != "embedded" || len(ready.Incarnation) != 40 {
		t.Errorf("%+v", ready)
	}

	underWay := make(chan answer, 1)
	go func() {
		a, err := s.send(context.Background(), call{method: "GET", path: "/wait"})
		if err != nil {
			t.Error(err)
		}
		underWay <- a
	}()
	<-s.begun
	s.stop()
	eventually(t, "/readyz says that it is stopping", func() bool { return s.do(t, "GET", "/readyz", "").status == 503 })
	if ready := must[wire.Readiness](t, &s.service, 503, "GET", "/readyz", ""); ready.Ready || ready.Reason != "stopping" {
		t.Errorf("%+v", ready)
	}
	if a := s.do(t, "GET", "/livez", ""); a.status != 200 {
		t.Errorf("/livez while draining: %d", a.status)
	}
	if a := s.do(t, "POST", "/incr/k", ""); a.status != 200 {
		t.Errorf("a request while draining: %d", a.status)
	}
	s.client.CloseIdleConnections()
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-s.ended:
		t.Fatalf("Serve ended before the request under way: %v", err)
	default:
	}
	close(s.proceed)
	if a := <-underWay; a.status != 200 || string(a.body) != "done" {
		t.Errorf("the request under way: %d %s", a.status, a.body)
	}
	if err := s.end(t); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// The order of a stop: while requests end, ids are stamped; then the worker id is given back, and the next server has it at once.
func TestStopGivesWorkerIDsBackBehindTheLastRequest(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := redisstore.Open(t.Context(), "embedded:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.Trust})
	state := func() workerlease.SlotState {
		ring, err := pools.Ring(t.Context(), "main", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return ring.Slots[0].State
	}
	s := listen(t, server.Config{Store: store, DrainDelay: 300 * time.Millisecond, IDPool: "main", Identity: "me", Workers: workerlease.Config{NewPools: workerlease.Trust}})
	defer s.client.CloseIdleConnections()
	s.ids(t, "/id/snowflake")
	underWay := make(chan struct{})
	go func() {
		defer close(underWay)
		if _, err := s.send(context.Background(), call{method: "GET", path: "/wait"}); err != nil {
			t.Error(err)
		}
	}()
	<-s.begun
	s.stop()
	eventually(t, "/readyz says that it is stopping", func() bool { return s.do(t, "GET", "/readyz", "").status == 503 })
	s.ids(t, "/id/snowflake?n=10")
	s.client.CloseIdleConnections()
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if got := state(); got != workerlease.Held {
		t.Errorf("while a request is under way the worker id is %s", got)
	}
	close(s.proceed)
	<-underWay
	if err := s.end(t); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got := state(); got != workerlease.Free {
		t.Errorf("after the stop the worker id is %s", got)
	}
	lease, err := pools.Acquire(t.Context(), "main", workerlease.Request{Identity: "me", Shape: workerlease.Shape{Layout: "41/10/12", Bits: 10, Epoch: time.Unix(0, 0)}})
	if err != nil || lease.WorkerID != 0 {
		t.Errorf("%+v %v", lease, err)
	}
}

func TestStopDoesNotWaitForEverForARequest(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), StopTimeout: 100 * time.Millisecond})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = s.send(context.Background(), call{method: "GET", path: "/wait"}) // whether it comes through is not promised
	}()
	<-s.begun
	s.stop()
	if err := s.end(t); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve: %v", err)
	}
	close(s.proceed)
	<-answered
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	s := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{})})
	if err := s.Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeThatFailsGivesItsWorkerIDBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := redisstore.Open(t.Context(), "embedded:")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(server.Config{Store: store, IDPool: "main", Workers: workerlease.Config{NewPools: workerlease.Trust}})
	listener.Close()
	if err := s.Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}
