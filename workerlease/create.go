package workerlease

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Create declares a pool new: that none of its worker ids is in use anywhere. Its first grant then
// waits for nothing. An *OtherPoolError with ErrExists: it has granted worker ids, or was declared
// before; with ErrOtherPool: it is pinned to another shape or TTL. ErrInvalid: a pool cannot
// have that name, or the TTL is out of bounds. TTL 0 means what the pool is pinned to, else
// DefaultTTL, or LongestTTL if that is shorter.
func (p *Pools) Create(ctx context.Context, pool string, shape Shape, ttl time.Duration) error {
	return p.create(ctx, pool, shape, ttl, "")
}

// Replace gives a pool another shape and TTL, as Create does where there is none. Every window of
// it must have ended by the clock of every server, and nothing of its state may have been lost: an
// *OtherPoolError with ErrExists says how long that takes. Earlier ids may be equal to those of the
// new shape: the caller has to rule that out.
func (p *Pools) Replace(ctx context.Context, pool string, shape Shape, ttl time.Duration) error {
	return p.create(ctx, pool, shape, ttl, milliseconds(p.config.Skew))
}

// create declares a pool; skew, unless it is "", lets it take the place of one whose windows have
// ended.
func (p *Pools) create(ctx context.Context, pool string, shape Shape, ttl time.Duration, skew string) error {
	request := Request{Shape: shape, TTL: ttl, WantLayout: true, WantEpoch: true, WantDatacenter: true}
	request, fresh, err := p.settle(pool, request)
	if err != nil {
		return err
	}
	shape, ttl = request.Shape, request.TTL
	ttl = cmp.Or(ttl, p.defaultTTL(pool))
	if err := checkFresh(fresh, ttl); err != nil {
		return err
	}
	reply, err := onstore.Run(ctx, p.store, scripts.WorkerCreate, p.keys(pool), shape.Layout, shape.epoch(), shape.Datacenter, fresh.Worker,
		ttl.Milliseconds(), p.longest(pool), skew)
	if err != nil {
		return err
	}
	if reply.Word() != "created" {
		return p.refusal(pool, reply)
	}
	p.seen.put(pool, Pin{shape, ttl})
	p.list(ctx, pool)
	return nil
}

// list adds a pool to List, which is for people. The next look at the pool makes up for a failure.
func (p *Pools) list(ctx context.Context, pool string) {
	_, _ = onstore.Run(ctx, p.store, scripts.NameAdd, []string{p.names()}, pool)
}

func (p *Pools) names() string { return onstore.Key(p.store, "workers", "names") }

// maxNames is how many names one page of them has at most.
const maxNames = 1000

// List lists the names of up to n pools (1 to 1000) in the order of their names, those after a
// name, "" for the first page, that begin with a prefix. next is the name after which the next page
// begins, which may be empty; "" where there is none.
func (p *Pools) List(ctx context.Context, prefix, after string, n int) (names []string, next string, err error) {
	if n < 1 || n > maxNames {
		return nil, "", fmt.Errorf("%w: n %d: 1 to %d", ErrInvalid, n, maxNames)
	}
	reply, err := onstore.Run(ctx, p.store, scripts.NameList, []string{p.names()}, prefix, after, n)
	if err != nil {
		return nil, "", err
	}
	if reply.Word() != "ok" {
		return nil, "", reply.Unexpected()
	}
	if names = reply.Values(); len(names) == n {
		next = names[n-1]
	}
	return names, next, nil
}
