package workerlease

import (
	"context"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/scripts"
)

// Create declares a pool new: that none of its worker ids is in use anywhere. Its first grant then waits for nothing. An *OtherPool with ErrExists: it has granted
// worker ids, or was declared before. TTL 0 means DefaultTTL.
func (p *Pools) Create(ctx context.Context, pool string, shape Shape, ttl time.Duration) error {
	request := Request{TTL: ttl, Shape: shape}
	layout, err := request.read()
	if err != nil {
		return err
	}
	reply, err := p.store.Run(ctx, scripts.WorkerCreate, p.keys(pool)[:1], layout.String(), shape.epoch(), shape.Datacenter, layout.Worker, request.ttl().Milliseconds())
	if err != nil {
		return err
	}
	if reply.Word() != "created" {
		return refusal(reply)
	}
	p.list(ctx, pool)
	return nil
}

// list makes a pool known to Names. That is for people to look at: a failure is made up for when the pool is looked at itself.
func (p *Pools) list(ctx context.Context, pool string) {
	_, _ = p.store.Run(ctx, scripts.NameAdd, []string{p.names()}, pool)
}

func (p *Pools) names() string { return p.store.Key("workers", "names") }

// MaxNames is how many names one page of them has at most.
const MaxNames = 1000

// Names lists up to n pools (1 to MaxNames) in the order of their names, those behind a name, "" for the first page, that begin with a prefix.
func (p *Pools) Names(ctx context.Context, prefix, behind string, n int) ([]string, error) {
	if n < 1 || n > MaxNames {
		return nil, fmt.Errorf("%w: n %d: 1 to %d", ErrRequest, n, MaxNames)
	}
	reply, err := p.store.Run(ctx, scripts.NameList, []string{p.names()}, prefix, behind, n)
	if err != nil {
		return nil, err
	}
	if reply.Word() != "ok" {
		return nil, reply.Unexpected()
	}
	return reply.Values(), nil
}
