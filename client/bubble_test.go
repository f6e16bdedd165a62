package client_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// pipes is a network within a synctest bubble: time passes only while all wait.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept, Close and Addr make it a net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// bubble starts a service on an embedded store within a synctest bubble.
func bubble(t *testing.T) *service {
	t.Helper()
	return bubbleWith(t, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
}

func bubbleWith(t *testing.T, config server.Config) *service {
	t.Helper()
	// a bubble begins before the default epoch of ids
	time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	config.Store = open(t, "embedded:")
	one := server.New(config)
	l := &proxy{service: apitest.Handler(t, one.Handler()), seen: map[string]int{}}
	t.Cleanup(func() {
		if err := one.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("closing the service: %v", err)
		}
	})
	c, wires := through(t, l)
	return &service{Client: c, store: config.Store, proxy: l, wires: wires}
}

// through serves a handler within a synctest bubble until the test ends, and returns a client of it
// with the client's transport.
func through(t *testing.T, handler http.Handler) (*client.Client, *http.Transport) {
	t.Helper()
	network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	web := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = web.Serve(network) // until it is closed
	}()
	t.Cleanup(func() {
		web.Close()
		<-served
	})
	wires := &http.Transport{DialContext: network.dial}
	c := connect(t, "http://127.0.0.1", func(config *client.Config) {
		config.HTTPClient, config.Timeout = &http.Client{Transport: wires}, 0
	})
	return c, wires
}

// late serves a request, but answers only after a while, or when the client has gone.
func late(after time.Duration) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		held := &holding{ResponseWriter: w, wait: func() {
			select {
			case <-time.After(after):
			case <-r.Context().Done():
			}
		}}
		service.ServeHTTP(held, r)
		return true
	}
}

// holding keeps an answer back.
type holding struct {
	http.ResponseWriter

	wait func()
}

func (h *holding) WriteHeader(status int) {
	h.wait()
	h.ResponseWriter.WriteHeader(status)
}

// silent serves nothing and never answers.
func silent(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
	return late(1000*time.Hour)(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		discard(r)
		w.WriteHeader(http.StatusBadGateway)
	}))
}
