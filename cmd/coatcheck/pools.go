package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// served is pools at a running service.
type served struct{ service *client.Client }

func (s served) hold(ctx context.Context, pool string, request client.WorkerRequest, options client.HoldOptions) (*client.Holder, error) {
	return s.service.HoldWorker(ctx, pool, request, options)
}

func (s served) create(ctx context.Context, pool string, request client.WorkerRequest, replace bool) (wire.WorkerPool, error) {
	shape := client.PoolShape{TTL: request.TTL, Layout: request.Layout, Epoch: request.Epoch}
	if request.Datacenter != nil {
		shape.Datacenter = *request.Datacenter
	}
	declare := s.service.CreatePool
	if replace {
		declare = s.service.ReplacePool
	}
	created, err := declare(ctx, pool, shape)
	return shownPool(created), err
}

func (s served) list(ctx context.Context) ([]wire.WorkerPool, error) {
	list := []wire.WorkerPool{}
	for pool, err := range s.service.Pools(ctx, "") {
		if err != nil {
			return nil, err
		}
		list = append(list, shownPool(pool))
	}
	return list, nil
}

func (s served) ring(ctx context.Context, pool string, from, n int) (wire.WorkerRing, error) {
	page, err := s.service.Ring(ctx, pool, from, n)
	ring := wire.WorkerRing{WorkerPool: shownPool(page.Pool), ServerTime: page.Now, Slots: []wire.WorkerSlot{}}
	for _, slot := range page.Slots {
		ring.Slots = append(ring.Slots, wire.WorkerSlot{
			WorkerID: slot.WorkerID, State: slot.State, Holder: slot.Identity, Fence: slot.Fence, NotBefore: slot.NotBefore, NotAfter: slot.NotAfter,
		})
	}
	return ring, err
}

func (s served) ids(ctx context.Context, pool string, n int) ([]snowflake.ID, error) {
	return s.service.SnowflakeIDs(ctx, pool, n)
}

func shownPool(pool client.Pool) wire.WorkerPool {
	return wire.WorkerPool{
		Pool: pool.Name, Layout: pool.Layout, Epoch: pool.Epoch, Datacenter: pool.Datacenter, Size: pool.Size, Used: pool.Used,
		TTL: pool.TTL.Milliseconds(), Quarantined: pool.Quarantined.Milliseconds(),
	}
}

// stored is pools straight on Redis.
type stored struct{ pools *workerlease.Pools }

// leaseRequest is a request as package workerlease takes it.
func (s stored) leaseRequest(pool string, request client.WorkerRequest) (workerlease.Request, error) {
	shape := workerlease.Shape{Layout: snowflake.DefaultLayout, Epoch: snowflake.DefaultEpoch}
	if pin, is := s.pools.Pin(pool); is {
		shape = pin.Shape
	}
	if request.Layout != "" {
		shape.Layout = request.Layout
	}
	if !request.Epoch.IsZero() {
		shape.Epoch = request.Epoch.UTC()
	}
	if request.Datacenter != nil {
		shape.Datacenter = *request.Datacenter
	}
	layout, err := snowflake.ParseLayout(shape.Layout)
	if err != nil {
		return workerlease.Request{}, usageError{err}
	}
	if request.Layout != "" && request.Datacenter == nil {
		shape.Datacenter = min(shape.Datacenter, 1<<layout.Datacenter-1) // it is not the pool's layout, which is what the refusal will say
	}
	if shape, err = shapeOf(layout, shape.Epoch, shape.Datacenter); err != nil {
		return workerlease.Request{}, usageError{err}
	}
	return workerlease.Request{
		TTL: request.TTL, Identity: request.Identity, Shape: shape,
		WantLayout: request.Layout != "", WantEpoch: !request.Epoch.IsZero(), WantDatacenter: request.Datacenter != nil,
	}, nil
}

func (s stored) hold(ctx context.Context, pool string, request client.WorkerRequest, options client.HoldOptions) (*client.Holder, error) {
	asked, err := s.leaseRequest(pool, request)
	if err != nil {
		return nil, err
	}
	return s.pools.Hold(ctx, pool, asked, options)
}

func (s stored) create(ctx context.Context, pool string, request client.WorkerRequest, replace bool) (wire.WorkerPool, error) {
	asked, err := s.leaseRequest(pool, request)
	if err != nil {
		return wire.WorkerPool{}, err
	}
	declare := s.pools.Create
	if replace {
		declare = s.pools.Replace
	}
	if err := declare(ctx, pool, asked.Shape, asked.TTL); err != nil {
		return wire.WorkerPool{}, err
	}
	ring, err := s.ring(ctx, pool, 0, 1)
	return ring.WorkerPool, err
}

func (s stored) list(ctx context.Context) ([]wire.WorkerPool, error) {
	list := []wire.WorkerPool{}
	for behind := ""; ; {
		names, err := s.pools.Names(ctx, "", behind, workerlease.MaxNames)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			ring, err := s.ring(ctx, name, 0, 1)
			if errors.Is(err, workerlease.ErrUnknown) {
				continue // it is listed and lost
			}
			if err != nil {
				return nil, err
			}
			list = append(list, ring.WorkerPool)
		}
		if len(names) < workerlease.MaxNames {
			return list, nil
		}
		behind = names[len(names)-1]
	}
}

func (s stored) ring(ctx context.Context, pool string, from, n int) (wire.WorkerRing, error) {
	page, err := s.pools.Ring(ctx, pool, from, n)
	if err != nil {
		return wire.WorkerRing{}, err
	}
	ring := wire.WorkerRing{ServerTime: page.Now, Slots: []wire.WorkerSlot{}, WorkerPool: wire.WorkerPool{
		Pool: pool, Layout: page.Layout, Epoch: page.Epoch, Datacenter: page.Datacenter, Size: 1 << page.Bits, Used: page.Used,
		TTL: page.TTL.Milliseconds(), Quarantined: page.Quarantined.Milliseconds(),
	}}
	for _, slot := range page.Slots {
		ring.Slots = append(ring.Slots, wire.WorkerSlot{
			WorkerID: slot.WorkerID, State: string(slot.State), Holder: slot.Identity, Fence: slot.Fence, NotBefore: slot.NotBefore, NotAfter: slot.NotAfter,
		})
	}
	return ring, nil
}

// ids leases a worker id for the moment that it takes to stamp them.
func (s stored) ids(ctx context.Context, pool string, n int) (ids []snowflake.ID, err error) {
	asked, err := s.leaseRequest(pool, client.WorkerRequest{})
	if err != nil {
		return nil, err
	}
	holder, err := s.pools.Hold(ctx, pool, asked, workerlease.HoldOptions{})
	if err != nil {
		return nil, err
	}
	var used time.Time
	defer func() {
		farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = holder.Release(farewell, used) // else it ends with its window
	}()
	lease, err := holder.Current()
	if err != nil {
		return nil, laterError{err}
	}
	layout, err := snowflake.ParseLayout(lease.Layout)
	if err != nil {
		return nil, err
	}
	generator, err := snowflake.New(holder, snowflake.Config{Layout: layout, Epoch: lease.Epoch})
	if err != nil {
		return nil, err
	}
	ids, err = generator.NextN(ctx, n)
	used = generator.Stop()
	if errors.Is(err, snowflake.ErrNoLease) || errors.Is(err, snowflake.ErrWindowEnded) {
		err = laterError{err}
	}
	return ids, err
}

// farewell is how long a release may take at a command's end.
const farewell = 2 * time.Second

// kindOf makes an error of the pools one that has an exit code of its own.
func kindOf(err error) error {
	switch {
	case err == nil || errors.As(err, new(usageError)) || errors.As(err, new(laterError)) || errors.As(err, new(exitError)):
		return err
	case errors.Is(err, client.ErrInvalidRequest) || errors.Is(err, workerlease.ErrRequest):
		return usageError{err}
	case errors.Is(err, client.ErrUnavailable) || errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, workerlease.ErrExhausted) || errors.Is(err, client.ErrExhausted):
		return laterError{err}
	case errors.Is(err, client.ErrQuarantined) || errors.Is(err, workerlease.ErrQuarantined):
		return laterError{fmt.Errorf("%w\nIf the pool is new, declare it so: coatcheck worker create POOL", err)}
	}
	return err
}
