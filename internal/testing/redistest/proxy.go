package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Fate is the proxy's treatment of a request.
type Fate int

// The fates of a request.
const (
	Pass      Fate = iota // it is forwarded, and answered
	CutBefore             // the connection is cut before it is forwarded
	// CutAfter forwards the request and cuts the connection before the answer goes back.
	CutAfter
	Swallow // it is not forwarded, and the connection stays
)

// Proxy stands between a client and a server of any kind, on an address of its own. It shows every
// request to a judge; a client that writes a request at once, as go-redis does, has it shown whole.
// It ends with the test. Its methods may be called by several goroutines.
type Proxy struct {
	target                string
	listener              net.Listener
	judge                 func(request []byte) (fate Fate, then func())
	deaf                  atomic.Bool
	noRequests, noAnswers atomic.Bool // come through
	open                  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// StartProxy starts a proxy in front of an address. judge decides the fate of a request, which
// waits for it; then, if not nil, is called just before the connection is cut. Several goroutines
// call it. Without a judge every request passes.
func StartProxy(t testing.TB, target string, judge func(request []byte) (fate Fate, then func())) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "StartProxy", err)
	if judge == nil {
		judge = func([]byte) (Fate, func()) { return Pass, nil }
	}
	p := &Proxy{target: target, listener: listener, judge: judge}
	p.open.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the proxy's address, 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns it as redis://127.0.0.1:port.
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// SetDeaf has later connections accepted and never answered, as a firewall that drops packets does.
func (p *Proxy) SetDeaf(deaf bool) { p.deaf.Store(deaf) }

// Swallow has nothing come through any more, either way, on any connection. All of them stay.
func (p *Proxy) Swallow() {
	p.noRequests.Store(true)
	p.SwallowAnswers()
}

// SwallowAnswers has everything come through to the server, and nothing back.
func (p *Proxy) SwallowAnswers() { p.noAnswers.Store(true) }

// Close closes all connections, and refuses new ones.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.open.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.keep(client)
		if p.deaf.Load() {
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(server)
		l := &proxied{proxy: p, client: client, server: server}
		p.open.Go(l.requests)
		p.open.Go(l.answers)
	}
}

func (p *Proxy) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
	}
	p.conns = append(p.conns, conn)
}

type proxied struct {
	proxy          *Proxy
	client, server net.Conn

	mu   sync.Mutex
	hold bool   // the next answer does not go back
	then func() // before the connection is cut for it
}

func (l *proxied) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (l *proxied) requests() {
	defer l.cut()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		if l.proxy.noRequests.Load() {
			continue
		}
		fate, then := l.proxy.judge(buffer[:n])
		switch fate {
		case CutBefore:
			if then != nil {
				then()
			}
			return
		case Swallow:
			continue
		case CutAfter:
			l.mu.Lock()
			l.hold, l.then = true, then
			l.mu.Unlock()
		case Pass:
		}
		if _, err := l.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *proxied) answers() {
	defer l.cut()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		if l.proxy.noAnswers.Load() {
			continue
		}
		l.mu.Lock()
		hold, then := l.hold, l.then
		l.mu.Unlock()
		if hold {
			if then != nil {
				then()
			}
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
