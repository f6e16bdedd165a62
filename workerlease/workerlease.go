package workerlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// Bounds of what a caller may ask for.
const (
	MinTTL     = 100 * time.Millisecond
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 30 * time.Second
	MaxBits    = 20   // width of a worker id, with the datacenter's
	MaxSlots   = 4096 // slots on one page of a ring
)

// NewPools is the treatment of a pool that Redis does not know: an unknown pool and a lost one look
// alike.
type NewPools string

// The treatments of an unknown pool.
const (
	// NewPoolsWait takes it for lost: nothing is granted until every window that may be open has
	// ended. It is the default.
	NewPoolsWait NewPools = "wait"
	// NewPoolsTrust takes it for new: it grants at once. After a loss of the whole pool its ids can
	// be in use twice.
	NewPoolsTrust NewPools = "trust"
)

// Config is the settings of pools, which all clients of a pool must share. The zero value of each
// field means the default beside it.
type Config struct {
	NewPools NewPools // "" = Wait
	// how far the clocks of two servers that can be master may differ, up to a minute; 0 = 1 s
	Skew time.Duration
	// how long a slot rests after its window before another holder gets it; 0 = not at all
	Cooldown time.Duration
	// LongestTTL is the longest TTL of a pool, which is how long nothing is granted after its state
	// may have been lost; a longer one is refused. MinTTL to MaxTTL. 0 = DefaultTTL. Under Trust it
	// is MaxTTL and is not published: after a noticed loss, the quarantine lasts for the pool's own
	// TTL.
	LongestTTL time.Duration
	// Pools pins pools by their names. A request for another shape or TTL is refused, also if Redis
	// does not know the pool. A layout may be written in any way that snowflake.ParseLayout reads.
	Pools map[string]Pin
	// Logger is told at warning level, at once, when Hold, Start or Stamp has to wait for a worker
	// id, with the reason and for how long, and at info level when it has one. nil = slog.Default
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.NewPools = cmp.Or(c.NewPools, NewPoolsWait)
	c.Skew = cmp.Or(c.Skew, time.Second)
	if c.LongestTTL == 0 && c.NewPools == NewPoolsWait {
		c.LongestTTL = DefaultTTL
	}
	if c.Skew > 0 {
		// scripts count milliseconds
		c.Skew = (c.Skew + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return c
}

// Check reports the first fault of a configuration, with the bound that it breaks.
func (c Config) Check() error {
	c = c.withDefaults()
	switch {
	case c.NewPools != NewPoolsWait && c.NewPools != NewPoolsTrust:
		return fmt.Errorf("workerlease: new pools %q: wait or trust", c.NewPools)
	case c.Skew < time.Millisecond || c.Skew > time.Minute:
		return fmt.Errorf("workerlease: skew %v: 1ms to 1m", c.Skew)
	case c.Cooldown < 0 || c.Cooldown > MaxTTL:
		return fmt.Errorf("workerlease: cool-down %v: 0 to %v", c.Cooldown, MaxTTL)
	case c.LongestTTL != 0 && (c.LongestTTL < MinTTL || c.LongestTTL > MaxTTL):
		return fmt.Errorf("workerlease: longest ttl %v: %v to %v", c.LongestTTL, MinTTL, MaxTTL)
	}
	for name, pin := range c.Pools {
		if err := c.checkPin(pin); err != nil {
			return fmt.Errorf("workerlease: pool %s: %w", name, err)
		}
	}
	return nil
}

// Pools are the worker-id pools of one store. It is safe for concurrent use.
type Pools struct {
	store  *redisstore.Store
	config Config
	seen   memory

	unanswered unanswered
}

// New returns the pools of a store. It panics without a store, and if [Config.Check] returns an
// error.
func New(store *redisstore.Store, config Config) *Pools {
	if store == nil {
		panic("workerlease: New needs a store: see redisstore.Open")
	}
	config = config.withDefaults()
	if err := config.Check(); err != nil {
		panic(err)
	}
	config.Pools = maps.Clone(config.Pools)
	for name, pin := range config.Pools {
		pin.Shape = pin.Shape.withDefaults()
		// as requests and leases have it
		pin.Shape.Layout = snowflake.MustLayout(pin.Shape.Layout).String()
		config.Pools[name] = pin
	}
	return &Pools{store: store, config: config}
}

// Shape is the form of a pool's ids, fixed by its first grant, or by Create. The zero value of each
// field means the default beside it.
type Shape struct {
	// as package snowflake writes it, with a worker id of MaxBits at most; "" =
	// snowflake.DefaultLayout
	Layout     string
	Datacenter int       // number of the pool's datacenter in its ids; 0 where the layout has none
	Epoch      time.Time // of the ids, whole milliseconds; the zero time = snowflake.DefaultEpoch
}

func (s Shape) withDefaults() Shape {
	s.Layout = cmp.Or(s.Layout, snowflake.DefaultLayout)
	if s.Epoch.IsZero() {
		s.Epoch = snowflake.DefaultEpoch
	}
	return s
}

func (s Shape) read() (snowflake.Layout, error) {
	layout, err := snowflake.ParseLayout(s.Layout)
	switch {
	case err != nil:
		return layout, fmt.Errorf("%w: %w", ErrInvalid, err)
	case layout.Datacenter+layout.Worker > MaxBits:
		return layout, fmt.Errorf("%w: layout %v: a worker id that is leased has %d bits at most with the datacenter's",
			ErrInvalid, layout, MaxBits)
	case s.Datacenter < 0 || s.Datacenter >= 1<<layout.Datacenter:
		return layout, fmt.Errorf("%w: datacenter %d: 0 to %d in layout %v", ErrInvalid, s.Datacenter, 1<<layout.Datacenter-1, layout)
	}
	return layout, nil
}

// Request describes a worker id to lease.
type Request struct {
	// TTL is the length of a window: MinTTL, or [ShortestTTL] of the layout, to what
	// [Pools.LongestTTL] says. It belongs to the pool: fixed by the first grant, and another one is
	// refused. 0 = the pool's, and for a pool that is new DefaultTTL, or LongestTTL if that is
	// shorter.
	TTL time.Duration
	// Identity names the holder, up to 200 characters without spaces: the worker id that it had
	// last is granted again, if its window has ended. "" = none.
	Identity string
	// of a pool that is new, unless it is pinned, or this process has seen it under Wait
	Shape Shape
	// NewShape replaces Shape for a new pool if the caller may not shape pools: then a request that
	// wants another is refused. nil = Shape
	NewShape *Shape
	// WantLayout, WantEpoch and WantDatacenter refuse a pool whose layout, epoch or datacenter is
	// not Shape's.
	WantLayout, WantEpoch, WantDatacenter bool
	// replicas that must have the grant and each renewal; 0 = what the store asks for
	Ack int
}

// read checks a request, and returns the layout of its shape.
func (r Request) read() (snowflake.Layout, error) {
	layout, err := r.Shape.read()
	if err == nil {
		err = r.check(layout)
	}
	return layout, err
}

func (r Request) check(layout snowflake.Layout) error {
	switch least := ShortestTTL(layout); {
	case r.TTL != 0 && r.TTL < least:
		return fmt.Errorf("%w: ttl %v: at least %v in layout %v", ErrInvalid, r.TTL, least, layout)
	case r.Identity != "" && !names.Valid(r.Identity):
		return fmt.Errorf("%w: identity: up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -", ErrInvalid)
	case r.Ack < 0 || r.Ack > 100:
		return fmt.Errorf("%w: ack %d: 0 to 100 replicas", ErrInvalid, r.Ack)
	}
	return nil
}

// ShortestTTL is the shortest TTL that a pool of a layout can be given: MinTTL, and three units of
// its timestamps. A unit is stamped only if all of it is in the window, and a window that is
// renewed every third of a TTL still has two thirds then, one third if a renewal failed: a shorter
// TTL could not hold the present second.
func ShortestTTL(layout snowflake.Layout) time.Duration { return max(MinTTL, 3*layout.Unit) }

// Lease is a granted worker id. It is a value: the caller that has its Token holds the lease.
type Lease = holder.Lease

// Acquire leases a worker id. The errors: ErrExhausted, ErrQuarantined, ErrEnded, an
// *OtherPoolError, ErrOtherPool if processes allow different longest TTLs, ErrInvalid;
// redisstore.ErrUnavailable (nothing was done), redisstore.ErrUnknownOutcome (a slot may be taken
// until its TTL has passed, or the next call for this pool and identity has got it). The pool's
// name must hold no brace.
func (p *Pools) Acquire(ctx context.Context, pool string, request Request) (Lease, error) {
	return p.ask(ctx, pool, request)
}

func (p *Pools) acquire(ctx context.Context, pool string, request Request, nonce string) (Lease, error) {
	request, _, err := p.settle(pool, request)
	if err != nil {
		return Lease{}, err
	}
	shape := request.Shape
	fresh, ttl := p.fresh(pool, request)
	layout, err := fresh.read()
	if err == nil {
		err = checkFresh(layout, ttl)
	}
	if err != nil {
		return Lease{}, err
	}
	reply, err := onstore.Run(ctx, p.on(request.Ack), scripts.WorkerAcquire, p.keys(pool),
		nonce, request.Identity, p.config.Skew.Milliseconds(), string(p.config.NewPools), p.config.Cooldown.Milliseconds(),
		wanted(request.WantLayout, shape.Layout), wanted(request.WantEpoch, shape.epoch()),
		wanted(request.WantDatacenter, strconv.Itoa(shape.Datacenter)), wanted(request.TTL != 0, milliseconds(request.TTL)),
		layout.String(), fresh.epoch(), fresh.Datacenter, layout.Worker, ttl.Milliseconds(), p.longest(pool))
	if err != nil {
		return Lease{}, err
	}
	if reply.Word() != "granted" {
		refused := p.refusal(pool, reply)
		if _, waits := errors.AsType[*NewPoolError](refused); waits {
			p.list(ctx, pool) // so that an operator sees what waits
		}
		return Lease{}, refused
	}
	lease := Lease{Pool: pool, Identity: request.Identity}
	head, first := "", ""
	if err := reply.Scan(&lease.WorkerID, &lease.NotBefore, &lease.NotAfter, &lease.Fence, &lease.Now, &head, &first); err != nil {
		return Lease{}, err
	}
	if err := readHead(head, &lease); err != nil {
		return Lease{}, err
	}
	lease.Token = token(nonce, lease.NotBefore)
	p.seen.put(pool, Pin{Shape{Layout: lease.Layout, Datacenter: lease.Datacenter, Epoch: lease.Epoch}, lease.TTL})
	if first == "1" {
		p.list(ctx, pool)
	}
	return lease, nil
}

// readHead reads of a pool's head, as scripts/lib/pool.lua writes it, what its leases have in
// common: the first five words of 'layout epoch datacenter bits ttl …'.
func readHead(head string, lease *Lease) error {
	words := append(scripts.Reply{"head"}, strings.Split(head, " ")...)
	bits := 0 // the layout says it
	return words.Scan(&lease.Layout, &lease.Epoch, &lease.Datacenter, &bits, &lease.TTL)
}

func (s Shape) epoch() string { return strconv.FormatInt(s.Epoch.UnixMilli(), 10) }

func wanted(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (p *Pools) on(ack int) *redisstore.Store {
	if ack == 0 {
		return p.store
	}
	return p.store.WithAck(ack)
}

func (p *Pools) keys(pool string) []string {
	return []string{onstore.Key(p.store, "worker", pool), onstore.Key(p.store, "worker", pool, "ends"),
		onstore.Key(p.store, "worker", pool, "names")}
}

// token is the proof of a lease: its nonce and the start of its window, which together name one
// grant.
func token(nonce string, notBefore time.Time) string {
	return fmt.Sprintf("%s.%d", nonce, notBefore.UnixMilli())
}

var tokenForm = lazyregexp.New(`^[A-Za-z0-9_-]{22}\.[0-9]{1,16}$`)

func openToken(token string) (nonce, notBefore string, ok bool) {
	if !tokenForm().MatchString(token) {
		return "", "", false
	}
	nonce, notBefore, _ = strings.Cut(token, ".")
	return nonce, notBefore, true
}
