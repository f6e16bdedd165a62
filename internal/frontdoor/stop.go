package frontdoor

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain has every answer from now on say that its connection ends with it: who has kept one goes
// elsewhere, and finds no connection closed that it is about to use.
func (d *Door) Drain() { d.draining.Store(true) }

// StopMargin is how much longer than its requests a stop may take, so that their answers are sent.
const StopMargin = 5 * time.Second

// Draining is how far a process has come to its end. The zero value is that of one that runs. It is
// safe for concurrent use.
type Draining struct {
	Stopping atomic.Bool // /readyz says so
	Closing  atomic.Bool // no operation is begun any more
}

// Begin begins a stop: /readyz says so, every answer ends its connection, and after the delay, in
// which load balancers see it, no operation is begun any more. Begin returns then. The log is told
// how many requests are under way, and how long they may take to end.
func (d *Draining) Begin(door *Door, requests int, delay, timeout time.Duration) {
	d.Stopping.Store(true)
	door.config.Logger.Info("stopping: after drain_delay no operation is begun, and requests under way may take up to stop_timeout",
		"requests", requests, "drain_delay", delay, "stop_timeout", timeout)
	door.Drain()
	time.Sleep(delay)
	d.Closing.Store(true)
}

// UnderWay is how many requests have come whole and are not answered.
func (d *Door) UnderWay() int { return int(d.underWay.Load()) }

// Stop takes no new connections, ends those that have no request under way, and waits until the
// others have been answered. It returns the context's error if a request that had come whole was
// still under way when the context ended.
//
// A connection that is new has a moment for its first request, one on which nothing has come
// since its last answer has not; of a body that does not come, nothing is lost.
func (d *Door) Stop(ctx context.Context, web *http.Server) error {
	d.Drain()
	d.closeListeners()
	d.hurry()
	d.settle(ctx)
	err := web.Shutdown(ctx)
	if err != nil && d.underWay.Load() == 0 {
		return nil
	}
	return err
}

// Cut ends every connection at once.
func (d *Door) Cut(web *http.Server) error {
	d.mu.Lock()
	for open := range d.inside {
		if c := plainly(open); c != nil {
			c.until.Store(0)
		}
	}
	d.mu.Unlock()
	return web.Close()
}

func (d *Door) closeListeners() {
	d.mu.Lock()
	listeners := d.listeners
	d.listeners = nil
	d.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // it may be closed already
	}
}

// settle ends the connections without a request, and waits a moment for the first request of those
// that are new, until it has reached its handler. Then no connection is about to read a request:
// [http.Server.Shutdown] would drop that unanswered, also one whose connection is active already.
func (d *Door) settle(ctx context.Context) {
	moment, cancel := context.WithTimeout(ctx, lingerTime)
	defer cancel()
	for {
		over := moment.Err() != nil
		ended, change := d.unused(over)
		for _, one := range ended {
			hangUp(one)
		}
		if change == nil || over {
			return
		}
		select {
		case <-change:
		case <-moment.Done():
		}
	}
}

// unused takes out the connections on which no request has begun, or with all those whose request
// has not come whole. The channel is closed when another look is due; nil if none is.
func (d *Door) unused(all bool) (ended []net.Conn, change <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.isAnyComingLocked()
	for at := d.quiet.Front(); at != nil; {
		open, _ := at.Value.(net.Conn)
		at = at.Next()
		kept, c := d.inside[open].kept, plainly(open)
		switch {
		case kept && isHTTP2(open): // Shutdown tells its client
		case all, kept && (c == nil || !c.heard.Load()):
			d.leaveLocked(open)
			ended = append(ended, open)
		default:
			waiting = true
		}
	}
	if waiting {
		change = d.changeLocked()
	}
	return ended, change
}

func (d *Door) isAnyComingLocked() bool {
	for open, v := range d.inside {
		if v.active && plainly(open).isComing() && !isHTTP2(open) {
			return true
		}
	}
	return false
}

// isHTTP2 waits for the handshake of a connection: ask for those on which it is over.
func isHTTP2(open net.Conn) bool {
	secured, ok := open.(*tls.Conn)
	return ok && secured.ConnectionState().NegotiatedProtocol == "h2"
}

// hurry gives each body that has not come whole a moment for the next piece.
func (d *Door) hurry() {
	d.bodiesMu.Lock()
	defer d.bodiesMu.Unlock()
	d.hurried = true
	for b := range d.bodies {
		b.hurry()
	}
}

// enterBody counts a request whose body has to come.
func (d *Door) enterBody(b *body) {
	d.bodiesMu.Lock()
	defer d.bodiesMu.Unlock()
	d.bodies[b] = struct{}{}
	if d.hurried {
		b.hurry()
	}
}

func (d *Door) leaveBody(b *body) {
	d.bodiesMu.Lock()
	defer d.bodiesMu.Unlock()
	delete(d.bodies, b)
}

// hurry bounds how long the client may send nothing.
func (b *body) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole || b.closed {
		return
	}
	if b.stall == 0 || b.stall > lingerTime {
		b.stall = lingerTime
	}
	_ = b.control.SetReadDeadline(time.Now().Add(b.stall))
}
