package redistest

import (
	"net"
	"sync"
	"testing"
)

// Fate is what becomes of a request that a proxy has seen.
type Fate int

// The fates of a request.
const (
	Pass      Fate = iota // it is forwarded, and answered
	CutBefore             // the connection is cut before it is forwarded
	CutAfter              // it is forwarded and answered; the connection is cut before the answer goes back
)

// Proxy stands between a client and a server, on an address of its own. It shows every request to a judge; a client that writes a request at once, as
// go-redis does, has it shown whole. It ends with the test.
type Proxy struct {
	target   string
	listener net.Listener
	judge    func(request []byte) (fate Fate, then func())
	open     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// StartProxy starts a proxy in front of an address. judge says what becomes of a request; then, if not nil, is called just before the connection is cut. It
// is called by several goroutines.
func StartProxy(t testing.TB, target string, judge func(request []byte) (fate Fate, then func())) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: StartProxy: %v", err)
	}
	p := &Proxy{target: target, listener: listener, judge: judge}
	p.open.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

// URL returns the proxy's address as redis://127.0.0.1:port.
func (p *Proxy) URL() string { return "redis://" + p.listener.Addr().String() }

func (p *Proxy) end() {
	_ = p.listener.Close()
	p.mu.Lock()
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
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		l := &proxied{proxy: p, client: client, server: server}
		p.open.Go(l.requests)
		p.open.Go(l.answers)
	}
}

// proxied is one connection through a proxy.
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
		fate, then := l.proxy.judge(buffer[:n])
		if fate == CutBefore {
			if then != nil {
				then()
			}
			return
		}
		if fate == CutAfter {
			l.mu.Lock()
			l.hold, l.then = true, then
			l.mu.Unlock()
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
