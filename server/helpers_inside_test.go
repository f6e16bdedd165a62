package server_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/server"
)

// pipes is a listener within the process, for tests whose time is not real.
type pipes struct {
	dialled chan net.Conn
	closed  context.Context
	close   context.CancelFunc
}

func newPipes(ctx context.Context) *pipes {
	p := &pipes{dialled: make(chan net.Conn)}
	p.closed, p.close = context.WithCancel(ctx)
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.dialled <- theirs:
		return ours, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialled:
		return conn, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// serveInside starts a service that listens within the process, in a bubble of synctest, where time
// passes when nothing is done. It ends with the test, or after stop.
func serveInside(t *testing.T, config server.Config) (s *service, stop context.CancelFunc) {
	t.Helper()
	open := context.WithoutCancel(t.Context()) // which is cancelled before the clean-up
	in, log := newPipes(open), &logtest.Text{}
	config.Logger = log.Logger()
	own := &http.Transport{DisableKeepAlives: true, DialContext: in.dial}
	s = &service{server: server.New(config), addr: "localhost", client: &http.Client{Transport: apitest.RoundTripper(t, own)}, log: log, dial: in.dial}
	ctx, stop := context.WithCancel(open)
	var serving sync.WaitGroup
	ended := make(chan struct{})
	s.ended = ended
	serving.Go(func() {
		defer close(ended)
		expect.Error(t, "Serve", s.server.Serve(ctx, in), nil)
	})
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	return s, stop
}
