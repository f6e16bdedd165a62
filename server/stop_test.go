package server_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
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
	expect.NoError(t, "listening", err)
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
	case <-time.After(patience):
		t.Fatalf("Serve has not ended within %v", patience)
		return nil
	}
}

func TestStopDrainsFinishesAndLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "opening the embedded store", err)
	defer store.Close()
	s := listen(t, server.Config{Store: store, DrainDelay: drain, StopTimeout: patience})
	defer s.client.CloseIdleConnections()
	ready := must[api.Readiness](t, &s.service, 200, "GET", "/readyz", "")
	expect.Equal(t, "GET /readyz", ready,
		api.Readiness{Ready: true, Store: "embedded", Incarnation: ready.Incarnation, Continues: &api.Continues{}})
	expect.Equal(t, "GET /readyz: length of the incarnation", len(ready.Incarnation), 40)

	underWay := make(chan answer, 1)
	go func() {
		a, err := s.send(context.Background(), call{method: "GET", path: "/wait"})
		if err != nil {
			t.Errorf("GET /wait: %v", err)
		}
		underWay <- a
	}()
	<-s.begun
	s.stop()
	expect.Eventually(t, "/readyz says that it is stopping", func() bool { return s.do(t, "GET", "/readyz", "").status == 503 })
	ready = must[api.Readiness](t, &s.service, 503, "GET", "/readyz", "")
	expect.Equal(t, "GET /readyz while draining: ready", ready.Ready, false)
	expect.Equal(t, "GET /readyz while draining: reason", ready.Reason, "stopping")
	s.do(t, "GET", "/livez", "").wantStatus(t, 200)
	s.do(t, "POST", "/incr/k", "").wantStatus(t, 200)
	s.client.CloseIdleConnections()
	s.refusesConnections(t)
	select {
	case err := <-s.ended:
		t.Fatalf("Serve ended before the request under way: %v", err)
	default:
	}
	close(s.proceed)
	a := <-underWay
	a.wantStatus(t, 200)
	a.wantBody(t, "done")
	expect.Error(t, "Serve", s.end(t), nil)
}

func TestStopLogsHowManyRequestsItWaitsForAndHowLong(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), DrainDelay: time.Millisecond, StopTimeout: patience})
	defer s.client.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() {
		_, err := s.send(context.Background(), call{method: "GET", path: "/wait"})
		answered <- err
	}()
	<-s.begun
	s.stop()
	s.refusesConnections(t)
	line := s.logLine(t, "msg=\"stopping: ")
	expect.Contains(t, "the line of a stop with one request under way", line, "requests=1", "drain_delay=1ms", "stop_timeout="+patience.String())
	close(s.proceed)
	expect.Error(t, "GET /wait", <-answered, nil)
	expect.Error(t, "Serve", s.end(t), nil)
}

// drain is how long a service that stops still takes connections. A test asks it several things in
// that time, each of which a busy machine may keep waiting.
const drain = 3 * time.Second

// refusesConnections waits until there is no listener at the service's address.
func (s *stoppable) refusesConnections(t *testing.T) {
	t.Helper()
	expect.Eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// The order of a stop: while requests end, ids are stamped; then the worker id is given back, and
// the next server has it at once.
func TestStopGivesWorkerIDsBackBehindTheLastRequest(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "opening the embedded store", err)
	defer store.Close()
	pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
	state := func() workerlease.SlotState {
		ring, err := pools.Ring(t.Context(), "main", 0, 1)
		expect.NoError(t, "looking at the ring of pool main", err)
		return ring.Slots[0].State
	}
	s := listen(t, server.Config{Store: store, DrainDelay: drain, StopTimeout: patience, IDPool: "main", Identity: "me", Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
	defer s.client.CloseIdleConnections()
	s.ids(t, "/id/snowflake")
	underWay := make(chan struct{})
	go func() {
		defer close(underWay)
		if _, err := s.send(context.Background(), call{method: "GET", path: "/wait"}); err != nil {
			t.Errorf("GET /wait: %v", err)
		}
	}()
	<-s.begun
	s.stop()
	expect.Eventually(t, "/readyz says that it is stopping", func() bool { return s.do(t, "GET", "/readyz", "").status == 503 })
	s.ids(t, "/id/snowflake?n=10")
	s.client.CloseIdleConnections()
	s.refusesConnections(t)
	expect.Equal(t, "the worker id while a request is under way", state(), workerlease.SlotStateHeld)
	close(s.proceed)
	<-underWay
	expect.Error(t, "Serve", s.end(t), nil)
	expect.Equal(t, "the worker id after the stop", state(), workerlease.SlotStateFree)
	lease, err := pools.Acquire(t.Context(), "main", workerlease.Request{Identity: "me", Shape: workerlease.Shape{Layout: "41/10/12", Epoch: time.Unix(0, 0)}})
	expect.NoError(t, "leasing a worker id after the stop", err)
	expect.Equal(t, "the worker id that the next process gets", lease.WorkerID, 0)
}

// A request that takes all the time to stop leaves time for what comes after it.
func TestStopThatLosesARequestGivesWorkerIDsBack(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	workers := workerlease.Config{NewPools: workerlease.NewPoolsTrust}
	s := listen(t, server.Config{Store: store, StopTimeout: 100 * time.Millisecond, IDPool: "main", Identity: "me", Workers: workers})
	s.ids(t, "/id/snowflake")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = s.send(context.Background(), call{method: "GET", path: "/wait"}) // it is cut off
	}()
	<-s.begun
	s.stop()
	expect.Error(t, "Serve", s.end(t), context.DeadlineExceeded)
	ring, err := workerlease.New(store, workers).Ring(t.Context(), "main", 0, 1)
	expect.NoError(t, "looking at the ring of pool main", err)
	expect.Equal(t, "the worker id after the stop", ring.Slots[0].State, workerlease.SlotStateFree)
	close(s.proceed)
	<-answered
}

// What is closed with the server answers no request on a connection that is left.
func TestServeThatFailsEndsItsConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listening", err)
	s := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{}), IdleTimeout: time.Hour})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	expect.NoError(t, "net.Dial", err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	reader := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
	response, err := http.ReadResponse(reader, nil)
	expect.NoError(t, "GET /livez", err)
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	listener.Close()
	expect.Error(t, "Serve whose listener was closed", <-ended, net.ErrClosed)
	_, err = io.Copy(io.Discard, reader)
	expect.Error(t, "reading the connection to its end", err, nil)
}

func TestServeThatFailsGivesItsWorkerIDBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "opening the embedded store", err)
	defer store.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listening", err)
	s := server.New(server.Config{Store: store, IDPool: "main", Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
	listener.Close()
	expect.Error(t, "Serve on a listener that is closed", s.Serve(t.Context(), listener), net.ErrClosed)
}
