package events

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/step"
)

const (
	batchInterval = 100 * time.Millisecond // what happens within it is sent together
	tallyInterval = time.Second
	heartbeat     = 15 * time.Second
	writeTimeout  = 10 * time.Second
)

// Subscriber is a client that follows the events.
type Subscriber struct {
	Reader access.Caller
	// Renew identifies the reader again: a key can expire. ok is false if it may not read on.
	Renew    func() (reader access.Caller, ok bool)
	Stopping <-chan struct{} // closed when the service stops
	// how many of the remembered events, up to Kept, a new one is sent first
	Backlog int64
}

// Serve sends this process's events, until the client hangs up, the service stops or the reader's
// right ends. It fails with *access.TooOftenError, and writes nothing, if there is no place for
// another subscriber of this principal.
func (l *Log) Serve(w http.ResponseWriter, r *http.Request, subscriber Subscriber) error {
	seat, ok := l.subscribe(subscriber.Reader.Principal)
	if !ok {
		return &access.TooOftenError{Wait: l.Heartbeat}
	}
	defer l.unsubscribe(seat)
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // proxies pass it on at once
	w.WriteHeader(http.StatusOK)
	s := &stream{Subscriber: subscriber, log: l, w: w, control: http.NewResponseController(w), evicted: seat.evicted}
	s.greet(r.Header.Get("Last-Event-ID"))
	s.follow(r.Context())
	return nil
}

// stream is a subscriber's connection. The first thing that cannot be written ends it.
type stream struct {
	Subscriber

	log      *Log
	w        http.ResponseWriter
	control  *http.ResponseController
	evicted  <-chan struct{}
	position int64
	changes  int64 // of the tally that the subscriber knows
	wrote    time.Time
	text     strings.Builder
	err      error
}

// greet sends a description of the stream, and how much the subscriber may have missed.
func (s *stream) greet(lastID string) {
	hello := api.EventHello{Scope: "process", Since: api.At(s.log.since), Kept: Kept, Kinds: sent}
	begin := s.log.greet(lastID)
	step.At("events: greets")
	hello.Tally, s.changes, s.position = begin.tally, begin.changes, begin.position
	if !begin.known {
		s.position = max(s.position-min(s.Backlog, Kept), 0)
	}
	s.text.WriteString("retry: 2000\n\n")
	s.add("hello", hello)
	if lastID != "" && !begin.known {
		s.add("missed", api.EventMissed{})
	}
	// where to begin again, should nothing happen until then
	fmt.Fprintf(&s.text, "id: %s\n\n", s.log.id(s.position))
	s.flush()
}

func (s *stream) follow(ctx context.Context) {
	tick := time.NewTicker(tallyInterval)
	defer tick.Stop()
	renewed := time.Now()
	for s.err == nil {
		changed := s.catchUp()
		select {
		case <-ctx.Done():
			return
		case <-s.Stopping:
			s.end("stopping")
			return
		case <-s.evicted:
			s.end("crowded")
			return
		case <-changed:
			select {
			case <-ctx.Done():
			case <-time.After(batchInterval):
			}
		case <-tick.C:
			s.sendTally()
			if time.Since(renewed) >= s.log.Heartbeat {
				renewed = time.Now()
				if !s.renew() {
					s.end("unauthorized")
					return
				}
			}
		}
	}
}

// renew reports whether the reader may still read.
func (s *stream) renew() (ok bool) {
	s.Reader, ok = s.Renew()
	return ok
}

// catchUp sends the subscriber's events so far, a few at a time, and returns a channel that more
// ones close.
func (s *stream) catchUp() (changed <-chan struct{}) {
	for changed == nil && s.err == nil {
		read, missed, end, next := s.log.after(s.position, s.Reader)
		if missed > 0 {
			s.add("missed", api.EventMissed{AtMost: missed})
		}
		for _, one := range read {
			fmt.Fprintf(&s.text, "id: %s\n", s.log.id(one.at))
			s.add("", one.event)
		}
		s.position, changed = end, next
		step.At("events: caught up")
		s.flush()
	}
	return changed
}

// sendTally sends the counts if they have changed, or a comment after a heartbeat of silence.
func (s *stream) sendTally() {
	if tally, changes := s.log.counts(); changes != s.changes {
		s.changes = changes
		s.add("tally", api.EventTally{Tally: tally})
	} else if time.Since(s.wrote) >= s.log.Heartbeat {
		s.text.WriteString(": still here\n\n")
	}
	s.flush()
}

func (s *stream) end(reason string) {
	s.add("end", api.EventEnd{Reason: reason})
	s.flush()
}

// add writes a message. JSON has no line ends of its own.
func (s *stream) add(event string, message any) {
	text, err := json.Marshal(message)
	if err != nil {
		s.err = err
		return
	}
	if event != "" {
		s.text.WriteString("event: " + event + "\n")
	}
	fmt.Fprintf(&s.text, "data: %s\n\n", text)
}

func (s *stream) flush() {
	if s.text.Len() == 0 || s.err != nil {
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.log.WriteTimeout)) // a recorder has none
	if _, s.err = s.w.Write([]byte(s.text.String())); s.err == nil {
		s.err = s.control.Flush()
	}
	s.text.Reset()
	s.wrote = time.Now()
}
