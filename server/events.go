package server

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// What happens in a service, as its feed tells it.
const (
	counterSet     = "counter.set"
	counterRemoved = "counter.removed"
	// refused: it has gone back, or everything was lost a moment ago
	counterInDoubt = "counter.in-doubt"

	poolCreated       = "pool.created"
	workerGranted     = "worker.granted"
	workerReleased    = "worker.released"
	workerLost        = "worker.lost" // somebody came with a lease that is not theirs, or no longer
	workerQuarantined = "worker.quarantined"
	workerExhausted   = "worker.exhausted"

	lockGranted     = "lock.granted"
	lockReleased    = "lock.released"
	lockLost        = "lock.lost" // as with workers
	lockBroken      = "lock.broken"
	lockQuarantined = "lock.quarantined"

	operationSettled = "operation.settled" // an operator has ended the doubt about it

	// who it was may not, or may not so often; of an admin's request also for other reasons.
	requestRefused = "request.refused"

	// somebody came again, and the first attempt has ended without an answer.
	tokenInDoubt = "token.in-doubt"
	storeChanged = "store.changed" // another incarnation: confirmed writes may be missing
)

// told are the kinds that the feed tells one by one.
var told = []string{
	counterSet, counterRemoved, counterInDoubt, poolCreated, workerGranted, workerReleased, workerLost, workerQuarantined, workerExhausted,
	lockGranted, lockReleased, lockLost, lockBroken, lockQuarantined, operationSettled, requestRefused, tokenInDoubt, storeChanged,
}

// What is only counted: there can be thousands in a second, and a person could do nothing with one.
const (
	tokenIssued    = "token.issued"
	tokenClaimed   = "token.claimed"
	tokenReplayed  = "token.replayed"
	tokenCompleted = "token.completed"
	tokenReleased  = "token.released"
)

var tallied = []string{tokenIssued, tokenClaimed, tokenReplayed, tokenCompleted, tokenReleased}

const (
	keptEvents   = 1024 // that a listener may be behind, and can have after it was away
	maxListeners = 64

	// repeats of what is refused again and again are told once in that time: clients try again
	// every second.
	repeatsApart = 10 * time.Second
	repeatsSeen  = 64 // of the last events
)

// feed remembers what happened last in this process, and wakes those who listen. What a listener
// has not had yet it reads from the memory that all share: who reads too slowly misses events and
// is told so, and holds no other up. It is safe for concurrent use; the zero value is not ready.
type feed struct {
	life  string // of this process: positions of another one say nothing here
	since time.Time
	// after so much silence a listener is sent a comment; so often it is looked whether it may
	// still listen
	beat     time.Duration
	patience time.Duration // how long a listener may take to take what is sent

	mu        sync.Mutex
	last      int64 // position of the newest event; the first is 1
	ring      [keptEvents]wire.Event
	tally     map[string]int64
	changes   int64         // of the tally
	news      chan struct{} // closed at the next event; nil = nobody waits
	listeners []*listening  // since the longest first
	places    share.Places  // of those, by principal
}

// listening is the place of one listener.
type listening struct {
	principal string
	over      chan struct{} // closed when the place goes to another principal
}

func newFeed() *feed {
	f := &feed{life: secret.New(), since: time.Now().UTC(), beat: heartbeat, patience: patience, tally: map[string]int64{}}
	for _, kind := range slices.Concat(told, tallied) {
		f.tally[kind] = 0
	}
	return f
}

// tell notes an event.
func (f *feed) tell(event wire.Event) {
	event.At = time.Now().UTC()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally[event.Kind]++
	f.changes++
	f.last++
	f.ring[f.last%keptEvents] = event
	if f.news != nil {
		close(f.news)
		f.news = nil
	}
}

// tellOnce notes an event of a kind that comes again and again, unless it was noted a moment ago.
func (f *feed) tellOnce(event wire.Event) {
	if f.seen(event) {
		f.count(event.Kind)
		return
	}
	f.tell(event)
}

// seen reports whether the same has happened a moment ago.
func (f *feed) seen(event wire.Event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := f.last; at > max(0, f.last-repeatsSeen); at-- {
		before := f.ring[at%keptEvents]
		if time.Since(before.At) > repeatsApart {
			return false
		}
		if before.Kind == event.Kind && before.Name == event.Name && (before.WorkerID == nil || event.WorkerID == nil || *before.WorkerID == *event.WorkerID) {
			return true
		}
	}
	return false
}

// count notes that something happened which is only counted.
func (f *feed) count(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally[kind]++
	f.changes++
}

// numbers is how often each thing has happened, and a number that changes with it.
func (f *feed) numbers() (tally map[string]int64, changes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.tally), f.changes
}

// enter lets a listener in, if there are not too many. If there are, the principal that has the
// most of them loses the one that has listened for longest to a principal that has fewer.
func (f *feed) enter(principal string) (l *listening, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.listeners) == maxListeners {
		from, yields := f.places.Yields(principal)
		if !yields {
			return nil, false
		}
		at := slices.IndexFunc(f.listeners, func(l *listening) bool { return l.principal == from })
		close(f.listeners[at].over)
		f.removeLocked(at)
	}
	l = &listening{principal, make(chan struct{})}
	f.listeners = append(f.listeners, l)
	f.places.Take(principal)
	return l, true
}

// leave gives a listener's place back, unless another has it.
func (f *feed) leave(l *listening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := slices.Index(f.listeners, l); at >= 0 {
		f.removeLocked(at)
	}
}

func (f *feed) removeLocked(at int) {
	f.places.Free(f.listeners[at].principal)
	f.listeners = slices.Delete(f.listeners, at, at+1)
}

// listeningNow is how many listeners there are.
func (f *feed) listeningNow() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.listeners)
}

// place is one event and where it stands.
type place struct {
	at    int64
	event wire.Event
}

// behind reads what is behind a position, as far as a reader may see it. missed is how many are not
// remembered any more, and news is closed when there is more than was read.
func (f *feed) behind(position int64, reader access.Caller) (read []place, missed, end int64, news <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := max(1, f.last-keptEvents+1)
	missed = max(0, oldest-1-position)
	for at := max(position+1, oldest); at <= f.last; at++ {
		if event, ok := shown(f.ring[at%keptEvents], reader); ok {
			read = append(read, place{at, event})
		}
	}
	if f.news == nil {
		f.news = make(chan struct{})
	}
	return read, missed, f.last, f.news
}

// shown returns an event as a reader may see it, if it may. One of the whole store everybody may
// see; another one without a name only who may touch all names. Who has asked, and who was refused,
// is for admins who may touch all names: others would hear of callers, and of names, that are not
// their business.
func shown(event wire.Event, reader access.Caller) (seen wire.Event, ok bool) {
	if reader.May(access.Admin) && reader.Names.All() {
		return event, true
	}
	event.EventBy = wire.EventBy{}
	return event, event.Kind != requestRefused && (event.Kind == storeChanged || reader.Names.Allow(event.Name))
}

// id is a position as listeners know it.
func (f *feed) id(position int64) string { return f.life + "." + strconv.FormatInt(position, 10) }

// position reads where a listener was. known is false if that was not in this process: what
// happened since it cannot tell.
func (f *feed) position(id string) (position int64, known bool) {
	life, text, _ := strings.Cut(id, ".")
	position, err := strconv.ParseInt(text, 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	if life != f.life || err != nil || position < 0 || position > f.last {
		return f.last, false
	}
	return position, true
}

// newest is the position of the newest event.
func (f *feed) newest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
