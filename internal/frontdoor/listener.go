package frontdoor

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/network"
)

// warnEvery is how often the log warns that the bound on connections is reached.
const warnEvery = time.Minute

// rank says what a connection loses if it makes room for a new one. The lowest goes first, and of
// one rank the longest unused.
type rank int

const (
	fresh   rank = iota // no request has come whole
	parting             // answered for the last time: it reads what its client still sends
	unknown             // idle, after requests that nobody with a right to them has sent
	known               // idle, after a request of a caller who may ask: see [Know]
	ranks
)

type visit struct {
	at     *list.Element // in a queue of the quiet; nil = not in one
	rank   rank          // of that queue
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

// addressOf is the origin of a connection.
func addressOf(conn net.Conn) netip.Prefix {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // none: it is within the machine
	return network.Of(from.Addr())
}

// enter lets a connection in; false if the listener was closed before there was room.
func (d *Door) enter(conn net.Conn, closed <-chan struct{}) bool {
	for {
		leaves, change, ok := d.try(conn)
		switch {
		case ok && leaves == nil:
			return true
		case ok:
			hangUp(leaves)
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
		if leaves = d.leastLocked(); leaves == nil {
			return nil, d.changeLocked(), false
		}
		d.leaveLocked(leaves)
	}
	d.inside[conn] = &visit{}
	d.addresses[addressOf(conn)]++
	return leaves, nil, true
}

// leastLocked returns the connection that loses least; nil if each has a request under way. A
// request whose body does not come has done nothing yet, so it goes before the idle.
func (d *Door) leastLocked() net.Conn {
	for of := range d.quiet {
		if rank(of) == unknown {
			if stalled := d.stalledLocked(); stalled != nil {
				return stalled
			}
		}
		if front := d.quiet[of].Front(); front != nil {
			open, _ := front.Value.(net.Conn)
			return open
		}
	}
	return nil
}

// stalledLocked returns the connection on which the body of its only request is waited for the
// longest. A streamed body may have been passed on.
func (d *Door) stalledLocked() (stalled net.Conn) {
	d.bodiesMu.Lock()
	defer d.bodiesMu.Unlock()
	var longest int64
	for b := range d.bodies {
		since := b.since.Load()
		if since == 0 || longest != 0 && since >= longest || b.conn == nil || b.conn.many.Load() || b.conn.wasTaken() || !b.counts() {
			continue
		}
		if _, inside := d.inside[b.conn.outer]; inside {
			stalled, longest = b.conn.outer, since
		}
	}
	return stalled
}

// Know notes that the connection of a request has served a caller who may ask: it is the last that
// makes room for others.
func Know(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.known.Store(true)
	}
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
		d.quietLocked(conn, v)
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

// quietLocked puts a connection without a request last in its queue.
func (d *Door) quietLocked(conn net.Conn, v *visit) {
	if v.at == nil {
		v.rank = fresh
		if c := plainly(conn); v.kept && c != nil && c.known.Load() {
			v.rank = known
		} else if v.kept {
			v.rank = unknown
		}
		v.at = d.quiet[v.rank].PushBack(conn)
	}
	d.tellLocked()
}

// parts notes that a connection reads on only so that its client sees the last answer.
func (d *Door) parts(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.inside[conn]; ok {
		d.loudLocked(v)
		v.rank = parting
		v.at = d.quiet[parting].PushBack(conn)
		d.tellLocked()
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
		d.quiet[v.rank].Remove(v.at)
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
