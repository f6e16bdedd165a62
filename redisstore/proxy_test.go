package redisstore_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fault is what a proxy does to a request that runs a script.
type fault int

const (
	pass      fault = iota
	cutBefore       // the connection is cut before the request is forwarded
	cutAfter        // the request is forwarded and answered; the connection is cut before the answer is
	swallow         // nothing is forwarded, and the connection stays
	delay           // the request is forwarded when the test says so
)

// proxy stands between a store and its server. Every fault is for the requests that run a script; the rest passes, but for hole.
type proxy struct {
	t        testing.TB
	target   string
	listener net.Listener
	open     sync.WaitGroup

	fault atomic.Int32
	runs  atomic.Int32  // requests that ran a script, as they came
	hole  atomic.Bool   // new connections are accepted and never answered
	later chan struct{} // closed when what was delayed may go on

	mu    sync.Mutex
	conns []net.Conn
}

// between starts a proxy to an address, and ends it with the test.
func between(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: target, listener: listener, later: make(chan struct{})}
	p.open.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

func (p *proxy) URL() string { return "redis://" + p.listener.Addr().String() }

func (p *proxy) set(f fault) { p.fault.Store(int32(f)) }

func (p *proxy) end() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.open.Wait()
}

func (p *proxy) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.keep(client)
		if p.hole.Load() {
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(server)
		link := &link{proxy: p, client: client, server: server}
		p.open.Go(link.requests)
		p.open.Go(link.answers)
	}
}

// link is one connection through a proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn
	drop           atomic.Bool // the next answer is not passed on
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (l *link) requests() {
	defer l.cut()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("\r\neval")) { // go-redis writes a request at once
			l.proxy.runs.Add(1)
			switch fault(l.proxy.fault.Load()) {
			case cutBefore:
				return
			case cutAfter:
				l.drop.Store(true)
			case swallow:
				continue
			case delay:
				l.forwardLater(bytes.Clone(buffer[:n]))
				return
			case pass:
			}
		}
		if _, err := l.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// forwardLater sends a request whose caller may have gone by then.
func (l *link) forwardLater(request []byte) {
	select {
	case <-l.proxy.later:
	case <-time.After(patience):
		l.proxy.t.Error("a delayed request was never let through")
		return
	}
	l.drop.Store(true)
	if _, err := l.server.Write(request); err == nil {
		_, _ = l.server.Read(make([]byte, 1)) // until it is answered, or answers has cut the connection because it was
	}
}

func (l *link) answers() {
	defer l.cut()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if err != nil || l.drop.Load() {
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
