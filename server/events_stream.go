package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/wire"
)

const eventsPath = "/events"

const (
	eventPace  = 100 * time.Millisecond // what happens within it goes out together
	tallyEvery = time.Second
	heartbeat  = 15 * time.Second
	patience   = 10 * time.Second // that a listener may take to take what is sent
)

// isStream reports whether a route's answer has no end of its own.
func isStream(c echo.Context) bool { return c.Path() == eventsPath }

// events tells what happens in this process as server-sent events, until the client hangs up, the
// server stops or the caller's right ends.
func (s *Server) events(c echo.Context) error {
	place, ok := s.feed.enter(caller(c).Principal)
	if !ok {
		return &access.TooOften{Wait: heartbeat}
	}
	defer s.feed.leave(place)
	header := c.Response().Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // proxies pass it on at once
	fresh(c)
	l := &listener{server: s, c: c, reader: caller(c), control: http.NewResponseController(c.Response()), over: place.over}
	c.Response().WriteHeader(http.StatusOK)
	l.greet(c.Request().Header.Get("Last-Event-ID"))
	l.follow(c.Request().Context())
	return nil
}

// listener is one client of the feed. The first thing that cannot be written ends it.
type listener struct {
	server   *Server
	c        echo.Context
	reader   access.Caller
	control  *http.ResponseController
	over     <-chan struct{} // closed when another principal has its place
	position int64
	changes  int64 // of the tally that it knows
	wrote    time.Time
	text     strings.Builder
	err      error
}

// greet says what this feed is, and what the listener may have missed.
func (l *listener) greet(lastID string) {
	feed := l.server.feed
	hello := wire.EventHello{Scope: "process", Since: feed.since, Kept: keptEvents, Kinds: told}
	hello.Tally, l.changes = feed.numbers()
	l.position = feed.newest()
	l.text.WriteString("retry: 2000\n\n")
	l.add("hello", hello)
	if lastID != "" {
		position, known := feed.position(lastID)
		l.position = position
		if !known {
			l.add("missed", wire.EventMissed{})
		}
	}
	// where to begin again, should nothing happen until then
	fmt.Fprintf(&l.text, "id: %s\n\n", feed.id(l.position))
	l.flush()
}

// follow sends what happens.
func (l *listener) follow(ctx context.Context) {
	tick := time.NewTicker(tallyEvery)
	defer tick.Stop()
	looked := time.Now()
	for l.err == nil {
		news := l.catchUp()
		select {
		case <-ctx.Done():
			return
		case <-l.server.waits.over:
			l.end("stopping")
			return
		case <-l.over:
			l.end("crowded")
			return
		case <-news:
			pause(ctx, eventPace)
		case <-tick.C:
			l.sendTally()
			if time.Since(looked) >= l.server.feed.beat {
				looked = time.Now()
				if !l.mayListen() {
					l.end("unauthorized")
					return
				}
			}
		}
	}
}

// catchUp sends what the listener has not had yet, and returns what is closed when there is more.
func (l *listener) catchUp() <-chan struct{} {
	read, missed, end, news := l.server.feed.behind(l.position, l.reader)
	if missed > 0 {
		l.add("missed", wire.EventMissed{AtMost: missed})
	}
	for _, one := range read {
		fmt.Fprintf(&l.text, "id: %s\n", l.server.feed.id(one.at))
		l.add("", one.event)
	}
	l.position = end
	l.flush()
	return news
}

// sendTally sends the numbers if they have changed, or a comment if there was silence for long.
func (l *listener) sendTally() {
	if tally, changes := l.server.feed.numbers(); changes != l.changes {
		l.changes = changes
		l.add("tally", wire.EventTally{Tally: tally})
	} else if time.Since(l.wrote) >= l.server.feed.beat {
		l.text.WriteString(": still here\n\n")
	}
	l.flush()
}

// mayListen looks again who is listening: a key can have ended since.
func (l *listener) mayListen() bool {
	who, err := l.server.identify(l.c, door{})
	l.reader = who
	return err == nil && who.May(access.Read)
}

func (l *listener) end(reason string) {
	l.add("end", wire.EventEnd{Reason: reason})
	l.flush()
}

// add writes a message. JSON has no line ends of its own.
func (l *listener) add(event string, message any) {
	text, err := json.Marshal(message)
	if err != nil {
		l.err = err
		return
	}
	if event != "" {
		l.text.WriteString("event: " + event + "\n")
	}
	fmt.Fprintf(&l.text, "data: %s\n\n", text)
}

// flush sends what was written.
func (l *listener) flush() {
	if l.text.Len() == 0 || l.err != nil {
		return
	}
	_ = l.control.SetWriteDeadline(time.Now().Add(l.server.feed.patience)) // a recorder has none
	if _, l.err = l.c.Response().Write([]byte(l.text.String())); l.err == nil {
		l.err = l.control.Flush()
	}
	l.text.Reset()
	l.wrote = time.Now()
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
