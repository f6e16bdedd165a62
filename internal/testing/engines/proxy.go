package engines

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Proxy stands before a server. It ends with the test. Its methods may be called by several
// goroutines.
type Proxy struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	engine   Engine
	addr     string            // of the server behind it
	servers  int               // that were behind it so far
	texts    map[string]string // by a script's name: the text that it has behind the proxy
	accepted int
	open     map[net.Conn]bool
	closed   bool
}

// Start starts a proxy in front of the server at an address.
func Start(t testing.TB, addr string, engine Engine) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("engines: Start: %v", err)
	}
	p := &Proxy{listener: listener, engine: engine, addr: addr, texts: map[string]string{}, open: map[net.Conn]bool{}}
	p.serving.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's address, 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns it as redis://127.0.0.1:port.
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// Accepted returns how many connections clients have made so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Be has the server look like another engine from the next command on.
func (p *Proxy) Be(engine Engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine = engine
}

// Behind puts the server at an address behind the proxy, from the next command on. It may be the
// one that was there, after a restart. Clients keep their connections.
func (p *Proxy) Behind(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addr = addr
	p.servers++
}

func (p *Proxy) now() (engine Engine, addr string, servers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine, p.addr, p.servers
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		p.mu.Unlock()
		p.serving.Go(func() {
			c := &conn{proxy: p, client: client, in: bufio.NewReader(client)}
			defer c.end()
			if p.keep(client) {
				c.serve()
			}
		})
	}
}

// keep has a connection end with the proxy, and reports whether that goes on.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	return !p.closed
}

func (p *Proxy) drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
}

// conn is a client's connection. One command after the other is answered.
type conn struct {
	proxy  *Proxy
	client net.Conn
	in     *bufio.Reader

	server  net.Conn // nil = none yet
	answers *bufio.Reader
	which   int                 // of the servers that were behind the proxy
	said    map[string][]string // HELLO, AUTH, SELECT
}

func (c *conn) end() {
	c.hangUp()
	c.proxy.drop(c.client)
}

func (c *conn) hangUp() {
	if c.server != nil {
		c.proxy.drop(c.server)
		c.server = nil
	}
}

func (c *conn) serve() {
	for {
		words, err := redistest.ReadCommand(c.in)
		if err != nil {
			return
		}
		name := strings.ToUpper(words[0])
		answer, listens := c.answer(name, words)
		if _, err := c.client.Write(answer); err != nil {
			return
		}
		if listens {
			c.listen()
			return
		}
	}
}

// answer is the answer to a command. From one that begins a subscription on, the server has more to
// say.
func (c *conn) answer(name string, words []string) (answer []byte, listens bool) {
	engine, _, _ := c.proxy.now()
	if refusal := engine.refuses(words); refusal != "" {
		return []byte("-" + refusal + "\r\n"), false
	}
	if !c.connect() {
		return []byte("-no upstream host\r\n"), false // Envoy's words, as those below
	}
	answer, err := c.ask(c.proxy.behind(engine, name, words))
	if err != nil {
		c.hangUp()
		return []byte("-upstream failure\r\n"), false
	}
	switch name {
	case "HELLO", "AUTH", "SELECT":
		if answer[0] != '-' {
			if c.said == nil {
				c.said = map[string][]string{}
			}
			c.said[name] = words
		}
	case "INFO":
		answer = edited(answer, func(text string) string { return engine.info(text) + engine.more(words[1:]) })
	case "SCRIPT":
		if len(words) == 3 && answer[0] != '-' && strings.EqualFold(words[1], "load") {
			answer = bulk('$', sha(words[2]))
		}
	}
	return answer, strings.HasSuffix(name, "SUBSCRIBE") && !strings.HasSuffix(name, "UNSUBSCRIBE")
}

// behind returns a command as the server gets it: a script has the engine's line before its text.
func (p *Proxy) behind(engine Engine, name string, words []string) []string {
	words = append([]string(nil), words...)
	switch {
	case name == "EVAL" && len(words) > 1:
		words[1] = p.known(engine, words[1])
	case name == "SCRIPT" && len(words) == 3 && strings.EqualFold(words[1], "load"):
		words[2] = p.known(engine, words[2])
	case name == "EVALSHA" && len(words) > 1:
		p.mu.Lock()
		text, is := p.texts[strings.ToLower(words[1])]
		p.mu.Unlock()
		if is {
			words[1] = sha(engine.script(text))
		}
	}
	return words
}

// known remembers a script's text by its name, and returns the one that the server gets.
func (p *Proxy) known(engine Engine, text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts[sha(text)] = text
	return engine.script(text)
}

// connect connects to the server that is behind the proxy now, and reports whether it answers.
func (c *conn) connect() bool {
	_, addr, servers := c.proxy.now()
	if c.server != nil && c.which == servers {
		return true
	}
	c.hangUp()
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", addr) // of this host
	if err != nil {
		return false
	}
	if !c.proxy.keep(server) {
		c.proxy.drop(server)
		return false
	}
	c.server, c.answers, c.which = server, bufio.NewReader(server), servers
	for _, name := range []string{"HELLO", "AUTH", "SELECT"} {
		if words, is := c.said[name]; is {
			if answer, err := c.ask(words); err != nil || answer[0] == '-' {
				c.hangUp()
				return false
			}
		}
	}
	return true
}

func (c *conn) ask(words []string) ([]byte, error) {
	if _, err := c.server.Write(command(words)); err != nil {
		return nil, err
	}
	return readReply(c.answers)
}

// listen passes everything on, either way, until one of both ends.
func (c *conn) listen() {
	var passing sync.WaitGroup
	passing.Go(func() {
		_, _ = io.Copy(c.client, c.answers)
		_ = c.client.Close()
	})
	_, _ = io.Copy(c.server, c.in)
	_ = c.server.Close()
	passing.Wait()
}
