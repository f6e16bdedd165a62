package counter

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// state is the state of a counter that is in order.
type state struct {
	place  pipeline.Place
	seen   bool
	floor  int64
	era    string
	id     string // of the incarnation
	anew   bool   // it has begun again on purpose since this process had used it
	absent bool   // it was not there: the script begins it, or reports the end that another gave it
}

func (e *entry) stateLocked() state {
	return state{e.open, e.seen, e.floor, e.era, e.id, false, e.absent}
}

// marker is what an INCRBY in this state depends on.
func (e *entry) markerIn(s state) pipeline.Marker { return pipeline.Marker{Key: e.marker, Era: s.era} }

// before reports whether a sum, less what was just added, is above all that this process had seen
// in this state.
func (s state) before(sum, by int64) bool { return !s.seen || sum-by >= s.floor }

// need is the purpose for which a counter is opened.
type need struct {
	by    int64         // how many values are to be added
	ttl   time.Duration // of a counter that begins; 0 = none
	limit int64         // the largest value that is of use; 0 = any is
	after AfterLoss     // what a counter does that has to move
}

// openWord is what counter_open calls it.
var openWord = map[AfterLoss]string{AfterLossMovePast: "past", AfterLossRefuse: "refuse", AfterLossStay: "stay"}

// highest returns the largest value that a counter may be moved from by a margin, "" for any: moved
// from a larger one, it would have no value left within the limit.
func (n need) highest(margin int64) string {
	if n.limit == 0 {
		return ""
	}
	return strconv.FormatInt(n.limit-n.by-margin, 10)
}

// ready returns a counter's state, after it was opened if that is needed.
func (c *Counters) ready(ctx context.Context, e *entry, n need) (state, error) {
	e.mu.Lock()
	e.last = need{by: 1, limit: n.limit, after: n.after}
	ready, now := e.readyLocked(), e.stateLocked()
	e.mu.Unlock()
	if ready {
		return now, nil
	}
	return c.open(ctx, e, n)
}

// open has Redis check a counter, and repair it if it has lost values.
func (c *Counters) open(ctx context.Context, e *entry, n need) (state, error) {
	marker := e.marker
	known, _ := c.eraOf(marker)
	e.mu.Lock()
	floor, least, life, ends := "", "", "", ""
	if e.seen {
		floor, least, life = strconv.FormatInt(e.floor, 10),
			strconv.FormatInt(e.floor+min(e.stray, math.MaxInt64-max(e.floor, 0)), 10), e.life
	}
	if e.seen && e.ends > 0 {
		ends = strconv.FormatInt(e.ends, 10)
	}
	e.mu.Unlock()
	step.At("counter: is about to open")
	asked := clock()
	words, place, err := c.engine.RunAt(ctx, scripts.CounterOpen, []string{e.redisKey, c.recordKey(e.key), marker},
		floor, life, ends, c.config.Margin, openWord[cmp.Or(n.after, c.config.AfterLoss)], known.era,
		c.config.HoldOff.Milliseconds(), n.highest(c.config.Margin), least, n.highest(0))
	if err != nil {
		return state{}, err
	}
	reply := scripts.Reply(words)
	if reply.Word() != "ok" {
		e.doubt() // it may have been in order before
	}
	switch reply.Word() {
	case "ok":
		return c.opened(ctx, e, reply, opening{place, marker, n.after, asked})
	case "hold-off":
		return state{}, c.heldOff(marker, reply)
	case "behind":
		err := c.behind(e, reply, floor, n)
		c.refused.log(ctx, c.log, err, clock())
		return state{}, err
	case "limit": // it has come to its end without a move
		return state{}, limited(n.limit)
	case "not-an-integer":
		return state{}, ErrNotAnInteger
	case "overflow":
		return state{}, ErrOverflow
	}
	return state{}, reply.Unexpected()
}

type opening struct {
	place  pipeline.Place
	marker string
	after  AfterLoss
	asked  time.Duration // when, by this process's clock
}

func (c *Counters) opened(ctx context.Context, e *entry, reply scripts.Reply, with opening) (state, error) {
	var value, life, era, moved, id string
	var left, now int64
	if err := reply.Scan(&value, &life, &era, &left, &now, &moved, &id); err != nil {
		return state{}, err
	}
	at, err := strconv.ParseInt(value, 10, 64)
	if value != "" && err != nil {
		return state{}, reply.Unexpected()
	}
	c.knows(with.marker, era)
	step.At("counter: was opened")
	e.mu.Lock()
	anew := e.seen && e.life != life
	e.listed = false
	e.life, e.era, e.id, e.open, e.queue, e.used = life, era, id, with.place, c.engine.Queue(with.place), clock()
	e.seen, e.floor, e.stray, e.absent = value != "", at, 0, value == ""
	e.endsLocked(now, left, with.asked)
	found := e.stateLocked()
	found.anew = anew
	e.mu.Unlock()
	if moved == "1" && with.after == AfterLossStay {
		c.log.InfoContext(ctx, "a counter had gone back, or may have, and goes on, as its caller asks",
			slog.String("key", e.key), slog.Int64("from", at))
	} else if moved == "1" {
		c.moved.Add(1)
		c.log.WarnContext(ctx, "a counter had gone back, or may have, and was moved past all values", slog.String("kind", c.config.Kind),
			slog.String("key", e.key), slog.Int64("to", at))
	}
	if c.store.Mode() != redisstore.ModeEmbedded { // whose data is lost only with this process
		c.watch.start(c)
	}
	return found, nil
}

// endsLocked notes when the counter expires: left milliseconds after now by Redis's clock, or never
// where left is negative. asked is a moment of this process's clock before Redis was asked.
func (e *entry) endsLocked(now, left int64, asked time.Duration) {
	e.ends, e.endsBy = 0, 0
	if left >= 0 {
		e.ends, e.endsBy = now+left, asked+time.Duration(left)*time.Millisecond
	}
}

func (c *Counters) heldOff(marker string, reply scripts.Reply) error {
	var wait time.Duration
	var era string
	if err := reply.Scan(&wait, &era); err != nil {
		return err
	}
	c.knows(marker, era)
	return &fault.WaitError{Err: ErrHoldOff, Wait: wait, Text: ", for {wait}; then each goes on past that by itself (--counter-hold-off)"}
}

func (c *Counters) behind(e *entry, reply scripts.Reply, floor string, n need) error {
	var value, life, why string
	var era int64 // it began when the loss was noticed, in microseconds
	if err := reply.Scan(&value, &life, &era, &why); err != nil {
		return err
	}
	at, err := strconv.ParseInt(value, 10, 64)
	if value != "" && err != nil {
		return reply.Unexpected()
	}
	seen, _ := strconv.ParseInt(floor, 10, 64) // '' is 0
	behind := &BehindError{Kind: c.config.Kind, Key: e.key, Value: at, Seen: seen, Why: why, TTL: n.ttl}
	if why != "" {
		behind.Noticed = time.UnixMicro(era)
	}
	if c.config.AfterLoss != AfterLossRefuse {
		behind.Limit = n.limit
	}
	return behind
}

// doubt makes the next call open the counter again before it adds.
func (e *entry) doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = pipeline.Place{}
}

// fellBehind is for an INCRBY whose sum is too small: the counter has gone back, or was set back on
// purpose. What was added can have lifted it to what this process has seen, and not to what others
// have, so that it does not count when the counter is opened.
func (e *entry) fellBehind(by int64) {
	e.doubt()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stray += min(by, math.MaxInt64-e.stray)
}

// failed is for an INCRBY that did not add, or may not have. What is not an integer to Redis may be
// a counter of a newer format, which only a script tells.
func (e *entry) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, pipeline.ErrNotAnInteger):
		if _, err := e.counters.Get(ctx, e.key); errors.Is(err, fault.ErrNewer) {
			return err
		}
		return ErrNotAnInteger
	case errors.Is(err, pipeline.ErrOverflow):
		return ErrOverflow
	}
	e.doubt() // another server may take over
	return err
}

// note puts a key on the list of names. A failure only means that it is not listed until the next
// process uses it.
func (c *Counters) note(ctx context.Context, key string) {
	_, _ = onstore.Run(ctx, c.store, scripts.NameAdd, []string{c.names()}, key)
}

func (c *Counters) key(key string) string { return onstore.Key(c.store, c.config.Kind, key) }
func (c *Counters) marker(key string) string {
	return onstore.SlotKey(c.store, c.config.Kind+"s", "marker", key)
}
func (c *Counters) recordKey(key string) string {
	return onstore.Key(c.store, c.config.Kind, key, "record")
}
func (c *Counters) names() string { return onstore.Key(c.store, c.config.Kind+"s", "names") }

// requestKey names the record of a request; the digest keeps clients' ids of any length out of
// Redis.
func (c *Counters) requestKey(key, requestID string) string {
	return onstore.Key(c.store, c.config.Kind, key, "request", names.Digest(requestID))
}
