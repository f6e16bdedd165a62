package embedded

import (
	"container/heap"
	"time"
)

// gcPause is the least wait before a sweep of an idle store. Commands sweep first: expiry is exact.
const gcPause = 100 * time.Millisecond

// clock knows when keys expire. miniredis can only make all its TTLs shorter, by a walk over all
// keys, so the store leaves them alone: what miniredis holds as a TTL is the instant of expiry,
// counted from the clock's start. A command that sets a TTL is rewritten to that, one that reads a
// TTL is answered by the store. All methods need the store's exec lock.
type clock struct {
	start time.Time
	queue deadlines
	timer *time.Timer
	armed time.Duration // when the timer fires, counted from start; 0 = it does not
}

func (c *clock) init(sweep func()) {
	c.start = time.Now()
	c.queue.of = map[string]*deadline{}
	c.timer = time.AfterFunc(time.Hour, sweep)
	c.timer.Stop()
}

func (c *clock) now() time.Duration { return time.Since(c.start) }

// set records when a key expires; 0 = never.
func (c *clock) set(key string, at time.Duration) {
	known := c.queue.of[key]
	switch {
	case at == 0 && known != nil:
		heap.Remove(&c.queue, known.place)
	case at == 0:
	case known != nil:
		known.at = at
		heap.Fix(&c.queue, known.place)
	default:
		heap.Push(&c.queue, &deadline{key: key, at: at})
	}
}

// due removes from the queue a key that has expired, and returns it.
func (c *clock) due(now time.Duration) (key string, ok bool) {
	if c.queue.Len() == 0 || c.queue.items[0].at > now {
		return "", false
	}
	return heap.Pop(&c.queue).(*deadline).key, true
}

// arm makes sure that the first key to expire is removed even if no command comes.
func (c *clock) arm() {
	if c.queue.Len() == 0 {
		return
	}
	now := c.now()
	next := max(c.queue.items[0].at, now+gcPause)
	if c.armed == 0 || next < c.armed {
		c.armed = next
		c.timer.Reset(next - now)
	}
}

func (c *clock) stop() { c.timer.Stop() }

func (c *clock) clear() {
	c.queue.items = nil
	clear(c.queue.of)
}

// deadlines is a heap of keys by the instant of their expiry.
type deadlines struct {
	items []*deadline
	of    map[string]*deadline
}

type deadline struct {
	key   string
	at    time.Duration
	place int // in the heap
}

func (d *deadlines) Len() int           { return len(d.items) }
func (d *deadlines) Less(i, j int) bool { return d.items[i].at < d.items[j].at }

func (d *deadlines) Swap(i, j int) {
	d.items[i], d.items[j] = d.items[j], d.items[i]
	d.items[i].place, d.items[j].place = i, j
}

func (d *deadlines) Push(x any) {
	item := x.(*deadline)
	item.place = len(d.items)
	d.items = append(d.items, item)
	d.of[item.key] = item
}

func (d *deadlines) Pop() any {
	last := len(d.items) - 1
	item := d.items[last]
	d.items[last] = nil
	d.items = d.items[:last]
	delete(d.of, item.key)
	return item
}

// expireIdle is what the clock's timer calls.
func (s *Store) expireIdle() {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.clock.armed = 0
	if s.closed {
		return
	}
	s.expireLocked()
	s.clock.arm()
}

func (s *Store) expireLocked() {
	now := s.clock.now()
	for {
		key, ok := s.clock.due(now)
		if !ok {
			return
		}
		s.redis.Del(key)
		s.weights.set(key, 0)
	}
}

// settleLocked checks the expiry and the size of the keys that a command may have changed.
func (s *Store) settleLocked() {
	for _, t := range s.touched {
		s.weights.note(t)
	}
	for _, t := range s.touched {
		s.clock.set(t.key, s.redis.TTL(t.key))
		s.weighLocked(t.key)
	}
	clear(s.touched)
	s.touched = s.touched[:0]
	s.clock.arm()
}
