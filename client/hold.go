package client

import (
	"context"
	"errors"
	"time"

	"github.com/coatcheck/coatcheck/internal/holding"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// Holder holds a worker id: it renews the lease, ends it by its own clock if no renewal is
// confirmed in time, and is what snowflake.New takes.
type Holder = holder.Holder

// HoldOptions are the options of a holder. The zero value of each field means its default.
type HoldOptions = holder.Options

// HoldWorker acquires a worker id and holds it until Release, its loss, or the end of the context.
// The errors are AcquireWorker's, when [HoldOptions].Wait is over, or with the context's cause.
// Package holder has the other errors of the holder, the causes of its context, and its events,
// which [HoldOptions].Observe gets. [Config].Logger gets a warning when it begins to wait for a
// worker id, and a line when it has one.
//
// At a program's end call first the generator's Stop, then the holder's Release with its result.
func (c *Client) HoldWorker(ctx context.Context, pool string, request WorkerRequest, options HoldOptions) (*Holder, error) {
	held, err := holding.Hold(ctx, c.log, pool, workers{c, pool, request}, options)
	if err != nil {
		return nil, err
	}
	return held.(*Holder), nil
}

// StartWorker begins to hold and returns at once: the first grant is asked for until it is there,
// until Release, or until the context ends. Only an answer that asking again cannot change ends
// it: ErrOtherPool and ErrInvalid.
func (c *Client) StartWorker(ctx context.Context, pool string, request WorkerRequest, options HoldOptions) *Holder {
	return holding.Start(ctx, c.log, pool, workers{c, pool, request}, options).(*Holder)
}

// Stamper stamps Snowflake ids with a worker id that it holds, in its lease's layout and epoch.
type Stamper = holder.Stamper

// StampWorker leases a worker id of a pool and returns a Stamper for Snowflake ids with it, in this
// process, until Close. Their layout, epoch and datacenter are those of the pool. When a
// worker id was lost it goes on with another one. The errors are those of AcquireWorker.
func (c *Client) StampWorker(
	ctx context.Context, pool string, request WorkerRequest, options HoldOptions, ids snowflake.Config,
) (*Stamper, error) {
	held, err := c.HoldWorker(ctx, pool, request, options)
	if err != nil {
		return nil, err
	}
	return holder.NewStamper(held, ids), nil
}

var _ holding.Leaser[WorkerLease] = workers{}

// workers asks for the leases of one holder.
type workers struct {
	client  *Client
	pool    string
	request WorkerRequest
}

// Acquire implements holding.Leaser. The service makes the nonce of a lease itself. A grant whose
// reply was lost is not found again: its worker id is unusable until its TTL has passed.
func (w workers) Acquire(ctx context.Context, _ string) (WorkerLease, error) {
	return w.client.AcquireWorker(ctx, w.pool, w.request)
}

func (w workers) Renew(ctx context.Context, lease WorkerLease) (WorkerLease, error) {
	return w.client.RenewWorker(ctx, lease)
}

func (w workers) Release(ctx context.Context, lease WorkerLease, usedUntil time.Time) error {
	return w.client.ReleaseWorker(ctx, lease, usedUntil)
}

// Judge implements holding.Leaser. The service's answer decides, by its code: an answer of a proxy
// in between ends neither a lease nor a holder.
func (workers) Judge(err error) holding.Verdict {
	ended := errors.Is(err, ErrLayoutUsedUp)
	verdict := holding.Verdict{
		Lost:  ended || errors.Is(err, ErrLost),
		Final: ended || errors.Is(err, ErrOtherPool) || errors.Is(err, ErrInvalid),
		Refused: errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrExhausted) &&
			!errors.Is(err, ErrQuarantined),
	}
	if said, ok := errors.AsType[*Error](err); ok {
		verdict.Wait = said.Wait
	}
	return verdict
}
