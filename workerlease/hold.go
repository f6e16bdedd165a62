package workerlease

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coatcheck/coatcheck/internal/holding"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// Holder holds a worker id: it renews the lease, ends it by its own clock if no renewal is
// confirmed in time, and is what snowflake.New takes.
type Holder = holder.Holder

// HoldOptions are the options of a holder. The zero value of each field means the default beside
// it.
type HoldOptions = holder.Options

// Hold acquires a lease and holds it until Release, its loss, or the end of the context. The errors
// are those of Acquire, after [HoldOptions].Wait or with the context's cause. Package holder has
// the other errors of the holder, the causes of its context, and the events that [HoldOptions] are
// told of.
func (p *Pools) Hold(ctx context.Context, pool string, request Request, options HoldOptions) (*Holder, error) {
	leaser := p.leaser(pool, request)
	held, err := holding.Hold(ctx, p.log(), pool, leaser, options)
	if err != nil {
		leaser.nonces.leave(p, asker{pool, request.Identity})
		return nil, err
	}
	return held.(*Holder), nil
}

// Start begins to hold and returns at once: the first grant is asked for until it is there, until
// Release, or until the context ends.
func (p *Pools) Start(ctx context.Context, pool string, request Request, options HoldOptions) *Holder {
	return holding.Start(ctx, p.log(), pool, p.leaser(pool, request), options).(*Holder)
}

func (p *Pools) log() *slog.Logger { return cmp.Or(p.config.Logger, slog.Default()) }

// Stamper stamps Snowflake ids with a worker id that it holds, in the layout and epoch of its
// lease.
type Stamper = holder.Stamper

// Stamp leases a worker id of a pool and returns a Stamper for Snowflake ids with it, until Close.
// A program that makes ids needs nothing else: their layout, epoch and datacenter are the pool's.
// When a worker id was lost it goes on with another one. The errors are those of Acquire.
func (p *Pools) Stamp(ctx context.Context, pool string, request Request, options HoldOptions, ids snowflake.Config) (*Stamper, error) {
	held, err := p.Hold(ctx, pool, request, options)
	if err != nil {
		return nil, err
	}
	return holder.NewStamper(held, ids), nil
}

func (p *Pools) leaser(pool string, request Request) leaser {
	return leaser{p, pool, request, &nonces{}}
}

var _ holding.Leaser[Lease] = leaser{}

// leaser asks for the leases of one holder.
type leaser struct {
	pools   *Pools
	pool    string
	request Request
	nonces  *nonces
}

// nonces are those of a holder's requests: it changes its own with each lease.
type nonces struct {
	holders, ours string // the one that the holder asks with, and what it stands for
	open          bool   // it is not known whether it was granted
}

// leave keeps the nonce of a holder that has given up for the next one.
func (n *nonces) leave(p *Pools, by asker) {
	if n.open {
		p.unanswered.put(by, n.ours)
	}
}

func (l leaser) Acquire(ctx context.Context, nonce string) (Lease, error) {
	n := l.nonces
	if n.holders != nonce {
		n.holders = nonce
		n.ours, n.open = l.pools.unanswered.take(asker{l.pool, l.request.Identity})
	}
	lease, err := l.pools.acquire(ctx, l.pool, l.request, n.ours)
	n.open = err != nil && (n.open || errors.Is(err, redisstore.ErrUnknownOutcome))
	return lease, err
}

func (l leaser) Renew(ctx context.Context, lease Lease) (Lease, error) {
	return l.pools.Renew(ctx, lease, l.request.Ack)
}

func (l leaser) Release(ctx context.Context, lease Lease, usedUntil time.Time) error {
	return l.pools.Release(ctx, lease.Pool, lease.WorkerID, lease.Token, usedUntil)
}

func (leaser) Judge(err error) holding.Verdict {
	return holding.Verdict{
		Wait: redisstore.RetryAfter(err),
		Lost: errors.Is(err, redisstore.ErrLost) || errors.Is(err, ErrEnded),
		Final: errors.Is(err, ErrOtherPool) || errors.Is(err, ErrEnded) ||
			errors.Is(err, ErrInvalid) || errors.Is(err, redisstore.ErrWrongType),
		Refused: errors.Is(err, redisstore.ErrRefused) && !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, ErrExhausted) &&
			!errors.Is(err, ErrQuarantined),
	}
}
