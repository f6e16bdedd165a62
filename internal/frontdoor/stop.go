package frontdoor

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// Drain makes every later answer end its connection: a client that keeps one goes elsewhere, and
// does not find it closed when it is about to use it.
func (d *Door) Drain() { d.draining.Store(true) }

// StopMargin is how much longer than its requests a stop may take, so that their answers are sent.
const StopMargin = 5 * time.Second

// Draining is the state of a process's stop. The zero value is a process that runs. It is safe for
// concurrent use.
type Draining struct {
	Stopping atomic.Bool // /readyz says so
	Closing  atomic.Bool // no operation is begun any more
}

// Begin begins a stop: /readyz reports it, every answer ends its connection, and after the delay,
// in which load balancers see it, no operation begins any more. Begin returns then. It logs how
// many requests are under way, and how long they may take to end.
func (d *Draining) Begin(door *Door, requests int, delay, timeout time.Duration) {
	d.Stopping.Store(true)
	door.config.Logger.Info("stopping: after drain_delay no operation is begun, and requests under way may take up to stop_timeout",
		"requests", requests, "drain_delay", delay, "stop_timeout", timeout)
	door.Drain()
	time.Sleep(delay)
	d.Closing.Store(true)
}

// UnderWay returns how many complete requests are not answered yet.
func (d *Door) UnderWay() int { return int(d.underWay.Load()) }

// Stop takes no new connections, ends those that have no request under way, and waits until the
// others have been answered. It returns the context's error if a complete request was still under
// way when the context ended.
//
// A new connection has a moment for its first request; one that is idle since its last answer has
// not. A request whose body does not come is dropped.
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

// settle ends the connections without a request, and waits a moment until the first request of each
// new one has reached its handler. Then no connection is about to read a request, which
// [http.Server.Shutdown] would drop unanswered, even if the connection is already active.
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

// unused removes the connections on which no request has begun, or with all those without a
// complete request. The channel is closed when another look is due; nil if none is.
func (d *Door) unused(all bool) (ended []net.Conn, change <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.isAnyComingLocked()
	for _, of := range []rank{fresh, unknown, known} {
		for at := d.quiet[of].Front(); at != nil; {
			open, _ := at.Value.(net.Conn)
			at = at.Next()
			c := plainly(open)
			switch {
			case of != fresh && isHTTP2(open): // Shutdown tells its client
			case all, of != fresh && (c == nil || !c.heard.Load()):
				d.leaveLocked(open)
				ended = append(ended, open)
			default:
				waiting = true
			}
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
	d.hurried = true
	bodies := slices.Collect(maps.Keys(d.bodies))
	d.bodiesMu.Unlock()
	for _, b := range bodies {
		b.hurry()
	}
}

// enterBody counts a request whose body has to come.
func (d *Door) enterBody(b *body) {
	d.bodiesMu.Lock()
	d.bodies[b] = struct{}{}
	hurried := d.hurried
	d.bodiesMu.Unlock()
	if hurried {
		b.hurry()
	}
}

func (d *Door) leaveBody(b *body) {
	d.bodiesMu.Lock()
	defer d.bodiesMu.Unlock()
	delete(d.bodies, b)
}

// hurry bounds how long the client may send nothing. A second call gives it no more time.
func (b *body) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole || b.closed || b.left || b.hurried {
		return
	}
	b.hurried = true
	if b.stall == 0 || b.stall > lingerTime {
		b.stall = lingerTime
	}
	_ = b.control.SetReadDeadline(time.Now().Add(b.stall))
}
