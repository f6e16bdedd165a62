package frontdoor

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// warnEvery is how often the log warns that the bound on connections is reached.
const warnEvery = time.Minute

type visit struct {
	at     *list.Element // in the queue of the quiet; nil = not in it
	kept   bool          // a request has been answered
	active bool          // a request has begun to come, and is not answered
	begun  bool          // it has been active: which protocol it speaks is known
}

type listener struct {
	net.Listener
	door   *Door
	once   sync.Once
	closed chan struct{}
	err    error
}

// Accept waits for the next connection, and until there is room for it.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.door.welcome(conn) {
			hangUp(conn)
			continue
		}
		conn = l.door.wrapped(conn)
		if !l.door.enter(conn, l.closed) {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		return conn, nil
	}
}

// Close ends Accept, also where it waits for room.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
	})
	return l.err
}

// welcome reports whether another connection of an address may come in.
func (d *Door) welcome(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config.MaxPerAddress == 0 || d.addresses[addressOf(conn)] < d.config.MaxPerAddress
}

// addressOf is the origin of a connection: one host, or one network of IPv6, since its owner has
// all of its addresses.
func addressOf(conn net.Conn) netip.Prefix {
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // a connection within the machine
	}
	address, bits := from.Addr().Unmap().WithZone(""), 32
	if address.Is6() {
		bits = 64
	}
	network, _ := address.Prefix(bits) // no address has fewer bits
	return network
}

// enter lets a connection in; false if the listener was closed before there was room.
func (d *Door) enter(conn net.Conn, closed <-chan struct{}) bool {
	for {
		quietest, change, ok := d.try(conn)
		switch {
		case ok && quietest == nil:
			return true
		case ok:
			hangUp(quietest)
			return true
		}
		select {
		case <-change:
		case <-closed:
			return false
		}
	}
}

// try admits a connection if there is room, or if it can replace one, which the caller then ends.
// Else change is closed when to try again.
func (d *Door) try(conn net.Conn) (leaves net.Conn, change <-chan struct{}, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.inside) >= d.config.MaxConnections {
		d.warnLocked()
		front := d.quiet.Front()
		if front == nil {
			return nil, d.changeLocked(), false
		}
		leaves, _ = front.Value.(net.Conn)
		d.leaveLocked(leaves)
	}
	d.inside[conn] = &visit{}
	d.addresses[addressOf(conn)]++
	return leaves, nil, true
}

func (d *Door) warnLocked() {
	if now := time.Now(); now.Sub(d.warned) >= warnEvery {
		d.warned = now
		d.config.Logger.Warn("as many connections are open as may be: those without a request are closed for new ones; see "+
			"--max-connections", "connections", len(d.inside))
	}
}

// hangUp ends a connection at once: TLS would wait for a client that may never read.
func hangUp(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if c := plainly(conn); c != nil {
		conn = c.Conn
	}
	_ = conn.Close() // it may be gone already
}

// note follows the connections, as [http.Server.ConnState]. One whose header has not come whole is
// quiet, too.
func (d *Door) note(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.inside[conn]
	if !ok {
		return // it was sent away
	}
	v.active = state == http.StateActive
	switch state {
	case http.StateNew, http.StateIdle:
		if v.kept = state == http.StateIdle; v.kept {
			if c := plainly(conn); c != nil {
				c.rest()
			}
		}
		if v.at == nil {
			v.at = d.quiet.PushBack(conn)
		}
		d.tellLocked()
	case http.StateActive:
		if !v.begun {
			v.begun = true
			if c := plainly(conn); c != nil && isHTTP2(conn) {
				c.beginHTTP2()
			}
		}
		d.loudLocked(v)
		d.tellLocked()
	case http.StateHijacked: // who takes over a connection says when it is Gone
		d.loudLocked(v)
		d.tellLocked()
		// no server waits for it any more
		if c := plainly(conn); c != nil && !c.taken.Swap(true) {
			d.underWay.Add(-1)
		}
	case http.StateClosed:
		d.leaveLocked(conn)
	}
}

// Gone reports the end of a connection that a handler had taken over.
func (d *Door) Gone(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaveLocked(conn)
}

func (d *Door) leaveLocked(conn net.Conn) {
	v, ok := d.inside[conn]
	if !ok {
		return
	}
	d.loudLocked(v)
	delete(d.inside, conn)
	if c := plainly(conn); c != nil {
		c.load.end()
	}
	address := addressOf(conn)
	if d.addresses[address]--; d.addresses[address] == 0 {
		delete(d.addresses, address)
	}
	d.tellLocked()
}

func (d *Door) loudLocked(v *visit) {
	if v.at != nil {
		d.quiet.Remove(v.at)
		v.at = nil
	}
}

// changeLocked is closed at the next change.
func (d *Door) changeLocked() <-chan struct{} {
	if d.change == nil {
		d.change = make(chan struct{})
	}
	return d.change
}

func (d *Door) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tellLocked()
}

func (d *Door) tellLocked() {
	if d.change != nil {
		close(d.change)
		d.change = nil
	}
}

// Inside is how many connections are open.
func (d *Door) Inside() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.inside)
}
