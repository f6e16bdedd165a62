package workerlease

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/snowflake"
)

// Pin is a pool's shape and TTL by the settings of its processes. It survives a loss of all state
// in Redis: a pinned pool never begins anew with another shape.
type Pin struct {
	Shape Shape
	TTL   time.Duration // MinTTL to MaxTTL, also above Config.LongestTTL; 0 = not pinned
}

// checkPin refuses a pool that can have no TTL, or not its pinned one.
func (c Config) checkPin(p Pin) error {
	p.Shape = p.Shape.withDefaults()
	layout, err := p.Shape.read()
	switch least := ShortestTTL(layout); {
	case err != nil:
		return err
	case !p.Shape.Epoch.Truncate(time.Millisecond).Equal(p.Shape.Epoch):
		return fmt.Errorf("epoch %v: whole milliseconds", p.Shape.Epoch.Format(time.RFC3339Nano))
	case p.TTL != 0 && (p.TTL < least || p.TTL > MaxTTL):
		return fmt.Errorf("ttl %v: %v to %v", p.TTL, least, MaxTTL)
	case p.TTL == 0 && c.LongestTTL != 0:
		return checkFresh(layout, c.LongestTTL)
	}
	return nil
}

// other is the refusal of a request for a pool that is pinned otherwise.
func (p Pin) other() error {
	return &OtherPoolError{Layout: p.Shape.Layout, Epoch: p.Shape.Epoch, Datacenter: p.Shape.Datacenter, TTL: p.TTL, is: ErrOtherPool}
}

// Pin returns the pin of a pool; ok is false if there is none.
func (p *Pools) Pin(pool string) (pin Pin, ok bool) {
	pin, ok = p.config.Pools[pool]
	return pin, ok
}

// LongestTTL is the longest TTL that a request for a pool may name.
func (p *Pools) LongestTTL(pool string) time.Duration {
	if p.config.LongestTTL == 0 {
		return MaxTTL
	}
	return max(p.config.LongestTTL, p.config.Pools[pool].TTL)
}

// longest is the longest TTL of a pool as an argument of scripts: 0 = the settings have none.
func (p *Pools) longest(pool string) int64 {
	return max(p.config.LongestTTL, p.config.Pools[pool].TTL).Milliseconds()
}

// check refuses a pool's name that is none, and a TTL that is out of bounds; 0 is the pool's. The
// error is ErrInvalid.
func (p *Pools) check(pool string, ttl time.Duration) error {
	if !names.Valid(pool) {
		return fmt.Errorf("%w: pool: %s", ErrInvalid, names.Rule)
	}
	if longest := p.LongestTTL(pool); ttl != 0 && (ttl < MinTTL || ttl > longest) {
		return fmt.Errorf("%w: ttl %v: %v to %v, the longest that the settings allow", ErrInvalid, ttl, MinTTL, longest)
	}
	return nil
}

// settle checks a request and applies its pool's pin. It returns the layout of the request's shape,
// and rewrites it as package snowflake does. The error is an *OtherPoolError or ErrInvalid.
func (p *Pools) settle(pool string, request Request) (Request, snowflake.Layout, error) {
	request.Shape = request.Shape.withDefaults()
	layout, err := snowflake.ParseLayout(request.Shape.Layout)
	if err == nil {
		request.Shape.Layout = layout.String()
	}
	if err = p.check(pool, request.TTL); err != nil {
		return request, layout, err
	}
	if request, err = p.pinned(pool, request); err != nil {
		return request, layout, err
	}
	layout, err = request.read()
	return request, layout, err
}

// defaultTTL is the TTL of a pool that is new and for which none is named.
func (p *Pools) defaultTTL(pool string) time.Duration { return min(DefaultTTL, p.LongestTTL(pool)) }

// checkFresh refuses a pool that is new whose windows hold too few units of its timestamps, since
// the settings allow no longer ones.
func checkFresh(layout snowflake.Layout, ttl time.Duration) error {
	if least := ShortestTTL(layout); ttl < least {
		return fmt.Errorf("%w: layout %v: its windows have to last %v, and %v is the longest ttl that the settings allow", ErrInvalid,
			layout, least, ttl)
	}
	return nil
}

// pinned applies a pool's pin to a request. The error is an *OtherPoolError: the request
// contradicts the pin.
func (p *Pools) pinned(pool string, request Request) (Request, error) {
	pin, is := p.Pin(pool)
	if !is {
		return request, nil
	}
	asked := request.Shape
	if request.WantLayout && asked.Layout != pin.Shape.Layout || request.WantEpoch && !asked.Epoch.Equal(pin.Shape.Epoch) ||
		request.WantDatacenter && asked.Datacenter != pin.Shape.Datacenter || request.TTL != 0 && pin.TTL != 0 && request.TTL != pin.TTL {
		return request, pin.other()
	}
	request.Shape, request.NewShape = pin.Shape, nil
	request.WantLayout, request.WantEpoch, request.WantDatacenter = true, true, true
	if pin.TTL != 0 {
		request.TTL = pin.TTL
	}
	return request, nil
}

// fresh is the shape of a new pool: the one that this process has seen, so that a loss does not
// change it; else the request's.
func (p *Pools) fresh(pool string, request Request) (Shape, time.Duration) {
	shape, ttl := request.Shape, request.TTL
	if request.NewShape != nil {
		shape = request.NewShape.withDefaults()
	}
	if _, is := p.Pin(pool); !is && p.config.NewPools == NewPoolsWait {
		if seen, is := p.seen.get(pool); is {
			shape, ttl = seen.Shape, seen.TTL
		}
	}
	ttl = cmp.Or(ttl, p.defaultTTL(pool))
	return shape, min(ttl, p.LongestTTL(pool))
}

// maxSeen bounds the pools whose shape a process remembers.
const maxSeen = 10_000

// memory is the pools' shapes that a process has seen. Beyond maxSeen it forgets one for another.
// It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	pools map[string]Pin
}

func (m *memory) get(pool string) (Pin, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pin, is := m.pools[pool]
	return pin, is
}

func (m *memory) put(pool string, seen Pin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools == nil {
		m.pools = map[string]Pin{}
	}
	if _, is := m.pools[pool]; !is && len(m.pools) >= maxSeen {
		for other := range m.pools {
			delete(m.pools, other)
			break
		}
	}
	m.pools[pool] = seen
}
