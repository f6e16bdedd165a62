package stamper

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Config sets up a Stamper. The zero value of each field means the default beside it.
type Config struct {
	Default  string        // a pool that is leased from at once and for good; "" = none
	Keep     []string      // others that are
	Identity string        // under which this process leases; "" = none
	Max      int           // pools at once, those included; 0 = 64
	Idle     time.Duration // after which a pool that was not used is given back; 0 = 10 minutes
	Spare    time.Duration // after which it makes room for another; 0 = a minute, Idle at most
	// Owner returns the owner of a pool that a call opens, from its context. With Max pools open
	// the owner of the most gives one up for an owner with fewer. nil = one owner has all.
	Owner  func(context.Context) string
	Logger *slog.Logger // nil = no log; it is not told the names of pools that clients chose

	// of pools by their names; others are taken as they are, and new ones get the defaults
	Shapes map[string]Shape
}

// Shape is the required form of a pool's ids. A pool with another layout or epoch is not used.
type Shape struct {
	Layout snowflake.Layout
	Epoch  time.Time // whole milliseconds
}

func (c Config) withDefaults() Config {
	c.Max = cmp.Or(c.Max, 64)
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	c.Spare = cmp.Or(c.Spare, min(c.Idle, time.Minute))
	if c.Owner == nil {
		c.Owner = func(context.Context) string { return "" }
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Stamper makes ids of the pools of one store. It is safe for concurrent use.
type Stamper struct {
	pools  *workerlease.Pools
	config Config
	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup // what runs in the background

	mu       sync.Mutex
	stampers map[string]*poolStamper
	places   share.Places // of those that are not kept for good, by owner
	reaping  bool
	closed   bool
}

// New returns a Stamper, which begins to lease from the pools that it keeps and waits for nothing.
// It is to be closed before the store is.
func New(pools *workerlease.Pools, config Config) *Stamper {
	s := &Stamper{pools: pools, config: config.withDefaults(), stampers: map[string]*poolStamper{}}
	s.life, s.end = context.WithCancel(context.Background())
	for _, pool := range s.kept() {
		s.stampers[pool] = s.open(pool, "")
	}
	return s
}

// kept lists the pools that are leased from for good.
func (s *Stamper) kept() []string {
	list := slices.Clone(s.config.Keep)
	if s.config.Default != "" {
		list = append(list, s.config.Default)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (s *Stamper) keeps(pool string) bool {
	return pool == s.config.Default || slices.Contains(s.config.Keep, pool)
}

// Origin is the source of ids.
type Origin struct {
	WorkerID int
	Layout   snowflake.Layout
	Epoch    time.Time
}

// Stamp fills ids, of which there is at least one, with ids of a pool, all of one grant and rising.
// The first use of a pool leases a worker id, which takes as long as that does. The errors:
// workerlease.ErrQuarantined and ErrExhausted with the remaining time, ErrTooMany,
// *UnavailableError; *workerlease.OtherPoolError, workerlease.ErrLayout, workerlease.ErrEnded and
// redisstore.ErrWrongType, which asking again does not change. After an error no id is to be used.
//
// The ids of rare calls are spread over shards, see [snowflake.Config.Spread].
func (s *Stamper) Stamp(ctx context.Context, pool string, ids []snowflake.ID) (Origin, error) {
	return s.stamp(ctx, pool, ids, (*snowflake.Generator).Fill)
}

// StampFromZero is Stamp with ids that are not spread.
func (s *Stamper) StampFromZero(ctx context.Context, pool string, ids []snowflake.ID) (Origin, error) {
	return s.stamp(ctx, pool, ids, (*snowflake.Generator).FillFromZero)
}

// fill is a method of a generator that fills ids.
type fill func(*snowflake.Generator, context.Context, []snowflake.ID) error

func (s *Stamper) stamp(ctx context.Context, pool string, ids []snowflake.ID, with fill) (Origin, error) {
	d, err := s.enter(pool, s.config.Owner(ctx))
	if err != nil {
		return Origin{}, err
	}
	defer s.leave(d)
	step.At("stamper: has a place")
	return d.stamp(ctx, ids, with)
}

// enter finds the pool's stamper, or opens it, and keeps it from being given back until leave.
func (s *Stamper) enter(pool, owner string) (*poolStamper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, stopping()
	}
	d := s.stampers[pool]
	if d == nil && len(s.stampers) >= s.config.Max && !s.makeRoomLocked(owner) {
		return nil, &fault.WaitError{
			Err: ErrTooMany, Wait: s.nextRoomLocked(),
			Text: fmt.Sprintf(": this server stamps ids of %d pools at most; an unused one is given back in {wait} at the earliest", s.config.Max),
		}
	}
	if d == nil || d.over() {
		if d != nil {
			s.closeLocked(d)
		}
		d = s.open(pool, owner)
		s.stampers[pool] = d
		if !s.keeps(pool) {
			s.places.Take(owner)
		}
		s.reapLocked()
	}
	d.users++
	return d, nil
}

func stopping() error { return &UnavailableError{Reason: "this server is stopping"} }

// givenBack is why a pool stamps no more: the server stops, or its place went to another.
func givenBack() error {
	return &UnavailableError{Reason: "this server is giving its worker id of the pool back: it is stopping, or the place was needed " +
		"for another pool"}
}

func (s *Stamper) leave(d *poolStamper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.users--
	d.used = time.Now()
}

// Declared says that a pool was declared new: a worker id of it that is being waited for here is
// asked for at once, and so is each call's that comes meanwhile.
func (s *Stamper) Declared(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.stampers[pool]; d != nil {
		d.askNow()
	}
}

// Origin returns the layout and epoch of the last ids that were stamped here of a pool; ok is false
// if none can have been. The worker id is the current one, if any.
func (s *Stamper) Origin(pool string) (origin Origin, ok bool) {
	s.mu.Lock()
	d := s.stampers[pool]
	s.mu.Unlock()
	if d == nil {
		return Origin{}, false
	}
	return d.origin()
}

// Status is the state of the worker id of one pool.
type Status struct {
	Pool     string
	Kept     bool // it is leased from for good
	Held     bool
	WorkerID int       // if it is held
	NotAfter time.Time // end of its window, if it is held
	Err      error     // why it is not held, as Stamp would say; nil = it is being asked for
}

// Status lists all pools of which ids are stamped here, by their names.
func (s *Stamper) Status() []Status {
	s.mu.Lock()
	var list []Status
	for _, d := range s.stampers {
		status := d.status()
		status.Kept = s.keeps(d.pool)
		list = append(list, status)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Pool, b.Pool) })
	return list
}

// Kept returns the states of the kept pools, by their names; nil when they are being given back. It
// waits for the answer to a lease that was just asked for, as long as the context lasts. One that
// was refused for good is asked for again.
func (s *Stamper) Kept(ctx context.Context) (list []Status) {
	var stampers []*poolStamper
	s.mu.Lock()
	for _, pool := range s.kept() {
		d := s.stampers[pool]
		switch {
		case d == nil: // closed
			s.mu.Unlock()
			return nil
		case d.over():
			s.closeLocked(d)
			d = s.open(pool, "")
			s.stampers[pool] = d
		}
		stampers = append(stampers, d)
	}
	s.mu.Unlock()
	for _, d := range stampers {
		_ = d.await(ctx) // the status says it
		status := d.status()
		status.Kept = true
		list = append(list, status)
	}
	return list
}

// Close stops the stamping and gives all leases back, at the same time, which takes two seconds at
// most, also where the context has ended. A lease that cannot be given back ends with its window;
// that is logged. Closing again does nothing.
func (s *Stamper) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for pool, d := range s.stampers {
		delete(s.stampers, pool)
		s.work.Go(func() { d.giveBack(ctx) })
	}
	s.mu.Unlock()
	s.end()
	s.work.Wait()
}

// reapLocked starts to release unused pools, if there can be any.
func (s *Stamper) reapLocked() {
	if s.reaping {
		return
	}
	s.reaping = true
	s.work.Go(s.reap)
}

func (s *Stamper) reap() {
	ticker := time.NewTicker(s.config.Idle / 10)
	defer ticker.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-ticker.C:
		}
		if !s.giveIdleBack() {
			return
		}
	}
}

// giveIdleBack releases unused pools, and reports whether pools are left to watch.
func (s *Stamper) giveIdleBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pool, d := range s.stampers {
		if !s.closed && !s.keeps(pool) && d.users == 0 && time.Since(d.used) >= s.config.Idle {
			s.closeLocked(d)
		}
	}
	s.reaping = len(s.stampers) > len(s.kept())
	return s.reaping
}
