package counter

import (
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/pipeline"
)

// forgetting is how long a process remembers an unused key. Redis keeps the record of a removed
// counter for longer.
const (
	forgetting  = 12 * time.Hour
	removedKept = 24 * time.Hour
)

// entry is this process's knowledge of one key.
type entry struct {
	counters *Counters
	key      string
	redisKey string
	marker   string

	mu      sync.Mutex
	plain   lane  // the calls without a TTL, by INCRBY
	ending  lane  // the calls with one, by the script: only it can see whether the counter ends
	sending batch // the calls in a batch that other keys share
	under   state // what was known when they were sent

	seen    bool  // floor is set
	floor   int64 // the largest value that this process has seen
	stray   int64 // what it has added to the counter since, when that was below the floor
	life    string
	era     string        // in which it was opened
	ends    int64         // when the counter expires by Redis's clock, in milliseconds; 0 = never
	endsBy  time.Duration // no later than that, by this process's clock
	id      string        // the incarnation in which it was opened
	open    pipeline.Place
	queue   pipeline.Queue // to the server of that place
	used    time.Duration  // when it was last used, by this process's clock
	listed  bool           // it was put on the list of names since it was opened
	absent  bool           // it was not there when it was opened
	dropped bool           // it is in the table no more
	last    need           // of the last call
}

// start is the origin of this package's clock, which runs monotonically.
var start = time.Now()

func clock() time.Duration { return time.Since(start) }

// entry returns the entry of a key, and adds it if needed.
func (c *Counters) entry(key string) *entry {
	if found, ok := c.keys.Load(key); ok {
		return found.(*entry)
	}
	found, was := c.keys.LoadOrStore(key, c.newEntry(key))
	if !was && c.count.Add(1) > int64(c.config.MaxKeys) {
		c.forget()
	}
	return found.(*entry)
}

func (c *Counters) newEntry(key string) *entry {
	return &entry{counters: c, key: key, redisKey: c.key(key), marker: c.marker(key), used: clock()}
}

// forget makes room: it drops the least recently used half of the keys.
func (c *Counters) forget() {
	var used []time.Duration
	c.keys.Range(func(_, value any) bool {
		used = append(used, value.(*entry).lastUsed())
		return true
	})
	slices.Sort(used)
	c.keys.Range(func(_, value any) bool {
		e := value.(*entry)
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.plain.busy && !e.ending.busy && e.used <= used[len(used)/2] {
			c.dropLocked(e)
		}
		return true
	})
}

func (e *entry) lastNeed() need {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

func (e *entry) lastUsed() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.used
}

func (c *Counters) dropLocked(e *entry) {
	if !e.dropped {
		e.dropped = true
		c.keys.Delete(e.key)
		c.count.Add(-1)
	}
}

// readyLocked reports whether the counter was opened, nothing has put it in doubt, and it has not
// expired since.
func (e *entry) readyLocked() bool {
	now := clock()
	if now-e.used > forgetting {
		e.seen = false
		return false
	}
	if !e.open.Known() {
		return false
	}
	e.used = now
	return e.ends == 0 || now < e.endsBy
}

// saw records a value that this process was given, and reports whether it is the first since the
// counter was opened.
func (e *entry) saw(value int64) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sawLocked(value)
}

func (e *entry) sawLocked(value int64) (first bool) {
	if !e.seen || value > e.floor {
		e.seen, e.floor = true, value
	}
	first = !e.listed
	e.listed = true
	return first
}
