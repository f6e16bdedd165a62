package events

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/share"
)

// Kept is how many events are remembered.
const Kept = capacity

const (
	readAtOnce     = 64   // events that a subscriber is sent at once
	capacity       = 1024 // events that a subscriber may lag behind, and gets after it was away
	maxSubscribers = 64

	// Repeated refusals are sent once in this time: clients try again every second. They are looked
	// for in the last events only.
	repeatInterval = 10 * time.Second
	repeatsSeen    = 64
)

// Log holds this process's last events and wakes subscribers. It is safe for concurrent use.
type Log struct {
	// After Heartbeat of silence a subscriber is sent a comment; as often it is asked whether it
	// may still read. A subscriber takes what is sent within WriteTimeout, or is given up. Both are
	// set before the first subscriber comes, or not at all.
	Heartbeat, WriteTimeout time.Duration

	process string // part of each event's id: positions of another process say nothing here
	since   time.Time

	mu          sync.Mutex
	last        int64 // position of the newest event; the first is 1
	ring        [capacity]api.Event
	tally       map[string]int64
	changes     int64         // of the tally
	changed     chan struct{} // closed at the next event; nil = no subscriber waits
	subscribers []*seat       // the oldest first
	places      share.Places  // of those, by principal
}

// seat is the place of one subscriber.
type seat struct {
	principal string
	evicted   chan struct{} // closed when the place goes to another principal
}

// New returns an empty Log.
func New() *Log {
	l := &Log{
		Heartbeat: heartbeat, WriteTimeout: writeTimeout,
		process: secret.New(), since: time.Now().UTC(), tally: map[string]int64{},
	}
	for _, kind := range slices.Concat(sent, counted) {
		l.tally[kind] = 0
	}
	return l
}

// Add notes an event, which happened now.
func (l *Log) Add(event api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(event)
}

func (l *Log) addLocked(event api.Event) {
	event.At = api.At(time.Now().UTC())
	l.countLocked(event.Kind)
	l.last++
	l.ring[l.last%capacity] = event
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// AddOnce is Add for a kind that repeats: the same event within ten seconds is only counted.
func (l *Log) AddOnce(event api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isRepeatLocked(event) {
		l.countLocked(event.Kind)
		return
	}
	l.addLocked(event)
}

// isRepeatLocked reports whether the same has happened a moment ago.
func (l *Log) isRepeatLocked(event api.Event) bool {
	for at := l.last; at > max(0, l.last-repeatsSeen); at-- {
		before := l.ring[at%capacity]
		if time.Since(before.At.Time) > repeatInterval {
			return false
		}
		sameWorker := before.WorkerID == nil || event.WorkerID == nil || *before.WorkerID == *event.WorkerID
		if before.Kind == event.Kind && before.Name == event.Name && sameWorker {
			return true
		}
	}
	return false
}

// Count counts an event of a kind that is only counted.
func (l *Log) Count(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLocked(kind)
}

func (l *Log) countLocked(kind string) {
	l.tally[kind]++
	l.changes++
}

// counts returns how often each kind has happened, and a number that changes with it.
func (l *Log) counts() (tally map[string]int64, changes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.tally), l.changes
}

// Tally returns how often each kind has happened.
func (l *Log) Tally() map[string]int64 {
	tally, _ := l.counts()
	return tally
}

// subscribe takes a place, if one is free. If none is, the principal with the most places loses its
// oldest to a principal that has fewer.
func (l *Log) subscribe(principal string) (s *seat, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.subscribers) == maxSubscribers {
		from, yields := l.places.Yields(principal)
		if !yields {
			return nil, false
		}
		at := slices.IndexFunc(l.subscribers, func(s *seat) bool { return s.principal == from })
		close(l.subscribers[at].evicted)
		l.removeLocked(at)
	}
	s = &seat{principal, make(chan struct{})}
	l.subscribers = append(l.subscribers, s)
	l.places.Take(principal)
	return s, true
}

// unsubscribe gives a subscriber's place back, unless another has it.
func (l *Log) unsubscribe(s *seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.subscribers, s); at >= 0 {
		l.removeLocked(at)
	}
}

func (l *Log) removeLocked(at int) {
	l.places.Free(l.subscribers[at].principal)
	l.subscribers = slices.Delete(l.subscribers, at, at+1)
}

// Subscribers returns how many there are.
func (l *Log) Subscribers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.subscribers)
}

type entry struct {
	at    int64
	event api.Event
}

// after returns the events after a position that a reader may see. missed is how many are not held
// any more, end the position of the newest, and changed is closed when there is more.
func (l *Log) after(position int64, reader access.Caller) (read []entry, missed, end int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := max(1, l.last-capacity+1)
	missed = max(0, oldest-1-position)
	for at := max(position+1, oldest); at <= l.last; at++ {
		if len(read) == readAtOnce {
			return read, missed, at - 1, nil
		}
		if event, ok := visible(l.ring[at%capacity], reader); ok {
			read = append(read, entry{at, event})
		}
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return read, missed, l.last, l.changed
}

// visible returns an event as a reader may see it, if it may. An event of the whole store is for
// all; another one without a name only for readers of all names. Callers and refusals are for
// admins of all names: other readers must not learn of foreign callers and names.
func visible(event api.Event, reader access.Caller) (seen api.Event, ok bool) {
	if reader.May(access.Admin) && reader.Names.All() {
		return event, true
	}
	event.EventBy = api.EventBy{}
	return event, event.Kind != RequestRefused && (event.Kind == StoreChanged || reader.Names.Allow(event.Name))
}

// id is a position as subscribers know it.
func (l *Log) id(position int64) string { return l.process + "." + strconv.FormatInt(position, 10) }

// greeting is what a subscriber knows at first: each event is in the tally, or after the position.
type greeting struct {
	tally    map[string]int64
	changes  int64
	position int64
	// the subscriber's last event is one of this process; if not, the position is the newest, and
	// the events since its last one are unknown
	known bool
}

// greet returns a greeting for a subscriber with that last event, "" for none.
func (l *Log) greet(lastID string) greeting {
	process, text, _ := strings.Cut(lastID, ".")
	position, err := strconv.ParseInt(text, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	g := greeting{maps.Clone(l.tally), l.changes, l.last, false}
	if process == l.process && err == nil && position >= 0 && position <= l.last {
		g.position, g.known = position, true
	}
	return g
}
