package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (s *Server) acquireWorker(c echo.Context) error {
	pool, err := name(c, "pool")
	if err != nil {
		return err
	}
	request, err := s.workerRequest(c, pool)
	if err != nil {
		return err
	}
	lease, err := s.pools.Acquire(c.Request().Context(), pool, request)
	if err != nil {
		return err
	}
	s.did(c, wire.Event{Kind: events.WorkerGranted, Name: pool, WorkerID: &lease.WorkerID, Fence: lease.Fence, Holder: lease.Identity})
	noStore(c)
	return c.JSON(http.StatusCreated, wire.WorkerLease{
		WorkerID: lease.WorkerID, Lease: lease.Token, Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: lease.NotAfter,
		TTL: lease.TTL.Milliseconds(), RenewEvery: renewEvery(lease.TTL), Layout: lease.Layout, Epoch: lease.Epoch, Datacenter: lease.Datacenter,
		Identity: lease.Identity, ServerTime: lease.Now,
	})
}

// renewEvery is how often a holder renews: three times in a TTL, so that one lost renewal costs
// nothing.
func renewEvery(ttl time.Duration) int64 { return ttl.Milliseconds() / 3 }

func (s *Server) workerRequest(c echo.Context, pool string) (workerlease.Request, error) {
	var asked wire.WorkerRequest
	if err := body(c, &asked); err != nil {
		return workerlease.Request{}, err
	}
	if asked.Identity != "" && !names.Valid(asked.Identity) {
		return workerlease.Request{}, invalid("identity", nameRule)
	}
	request, err := s.poolRequest(pool, asked.PoolRequest)
	// who may not declare pools does not shape one by asking first
	if err == nil && !caller(c).May(access.Admin) {
		var plain workerlease.Shape
		plain, _, err = s.shapeOf(pool, wire.PoolRequest{})
		request.NewShape = &plain
	}
	request.Identity = asked.Identity
	return request, err
}

func (s *Server) poolRequest(pool string, asked wire.PoolRequest) (workerlease.Request, error) {
	ttl, err := millis("ttl_ms", asked.TTL, 0, workerlease.MinTTL, s.pools.LongestTTL(pool))
	if err != nil {
		return workerlease.Request{}, err
	}
	shape, layout, err := s.shapeOf(pool, asked)
	if err != nil {
		return workerlease.Request{}, err
	}
	least, most := workerlease.ShortestTTL(layout), s.pools.LongestTTL(pool)
	switch {
	case most < least:
		return workerlease.Request{}, invalid("layout", fmt.Sprintf("%v needs windows of %d milliseconds, to hold whole seconds, and this service allows %d (--worker-longest-ttl)", layout, least.Milliseconds(), most.Milliseconds()))
	case ttl != 0 && ttl < least:
		return workerlease.Request{}, invalid("ttl_ms", fmt.Sprintf("%d to %d milliseconds in layout %v: a window holds whole seconds", least.Milliseconds(), most.Milliseconds(), layout))
	}
	return workerlease.Request{
		TTL: ttl, Shape: shape, WantLayout: asked.Layout != nil, WantEpoch: asked.Epoch != nil, WantDatacenter: asked.Datacenter != nil,
	}, nil
}

// shapeOf reads layout, epoch and datacenter. What is left out is what the settings say of the
// pool, else the default of a pool that is new.
func (s *Server) shapeOf(pool string, asked wire.PoolRequest) (shape workerlease.Shape, layout snowflake.Layout, err error) {
	text, epoch, datacenter := snowflake.DefaultLayout, snowflake.DefaultEpoch, 0
	if pin, is := s.pools.Pin(pool); is {
		text, epoch, datacenter = pin.Shape.Layout, pin.Shape.Epoch, pin.Shape.Datacenter
	}
	if asked.Layout != nil {
		text = *asked.Layout
	}
	if layout, err = snowflake.ParseLayout(text); err != nil {
		return shape, layout, invalid("layout", err.Error())
	}
	if layout.Datacenter+layout.Worker > workerlease.MaxBits {
		return shape, layout, invalid("layout", fmt.Sprintf("a worker id that is leased has at most %d bits with the datacenter's", workerlease.MaxBits))
	}
	if asked.Epoch != nil {
		epoch = asked.Epoch.UTC()
	}
	if epoch.Before(time.Unix(0, 0)) || epoch.After(time.Now()) || !epoch.Equal(epoch.Truncate(time.Millisecond)) {
		return shape, layout, invalid("epoch", "a whole millisecond from 1970-01-01T00:00:00Z to now")
	}
	if end := layout.Lasts(epoch); end.Before(time.Now()) {
		return shape, layout, invalid("layout", "its timestamps, counted from that epoch, ended at "+end.Format(time.RFC3339))
	}
	if asked.Datacenter != nil {
		datacenter = *asked.Datacenter
	}
	if asked.Layout != nil && asked.Datacenter == nil {
		// it is not the pool's layout, which is what the refusal will say
		datacenter = min(datacenter, 1<<layout.Datacenter-1)
	}
	if most := 1<<layout.Datacenter - 1; datacenter < 0 || datacenter > most {
		return shape, layout, invalid("datacenter", "0 to "+strconv.Itoa(most)+" in layout "+layout.String())
	}
	return workerlease.Shape{Layout: layout.String(), Datacenter: datacenter, Epoch: epoch}, layout, nil
}

func (s *Server) createPool(c echo.Context) error {
	pool, err := name(c, "pool")
	if err != nil {
		return err
	}
	var asked wire.PoolRequest
	if err := body(c, &asked); err != nil {
		return err
	}
	request, err := s.poolRequest(pool, asked)
	if err != nil {
		return err
	}
	declare := s.pools.Create
	if replace, err := queryFlag(c, "replace"); err != nil {
		return err
	} else if replace {
		declare = s.pools.Replace
	}
	if err := declare(c.Request().Context(), pool, request.Shape, request.TTL); err != nil {
		return err
	}
	s.did(c, wire.Event{Kind: events.PoolCreated, Name: pool})
	ring, err := s.pools.Ring(c.Request().Context(), pool, 0, 1)
	if err != nil {
		return err
	}
	noStore(c)
	c.Response().Header().Set("Location", "/worker/"+pool)
	return c.JSON(http.StatusCreated, poolOf(pool, ring))
}

func poolOf(pool string, ring workerlease.Ring) wire.WorkerPool {
	return wire.WorkerPool{
		Pool: pool, Layout: ring.Layout, Epoch: ring.Epoch, Datacenter: ring.Datacenter, Size: 1 << ring.Bits, Used: ring.Used,
		TTL: ring.TTL.Milliseconds(), Quarantined: ring.Quarantined.Milliseconds(),
	}
}

func (s *Server) renewWorker(c echo.Context) error {
	lease, err := workerOf(c)
	if err != nil {
		return err
	}
	if err := s.proofOf(c, &lease); err != nil {
		return err
	}
	renewed, err := s.pools.Renew(c.Request().Context(), lease, 0)
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, wire.WorkerRenewed{
		WorkerID: lease.WorkerID, NotAfter: renewed.NotAfter, TTL: renewed.TTL.Milliseconds(), RenewEvery: renewEvery(renewed.TTL), ServerTime: renewed.Now,
	})
}

// proofOf reads the body of a renewal into the lease.
func (s *Server) proofOf(c echo.Context, lease *workerlease.Lease) error {
	var told wire.RenewRequest
	if err := body(c, &told); err != nil {
		return err
	}
	ttl, err := millis("ttl_ms", told.TTL, 0, workerlease.MinTTL, s.pools.LongestTTL(lease.Pool))
	if err != nil {
		return err
	}
	lease.TTL, lease.Fence, lease.Identity = ttl, told.Fence, told.Identity
	if told.NotAfter == nil || told.Layout == "" || told.Epoch == nil {
		return nil
	}
	shape, _, err := s.shapeOf(lease.Pool, wire.PoolRequest{Layout: &told.Layout, Epoch: told.Epoch, Datacenter: &told.Datacenter})
	lease.NotAfter, lease.Layout, lease.Datacenter, lease.Epoch = *told.NotAfter, shape.Layout, shape.Datacenter, shape.Epoch
	return err
}

func (s *Server) releaseWorker(c echo.Context) error {
	lease, err := workerOf(c)
	if err != nil {
		return err
	}
	used, err := queryTime(c, "used_until")
	if err != nil {
		return err
	}
	if err := s.pools.Release(c.Request().Context(), lease.Pool, lease.WorkerID, lease.Token, used); err != nil {
		return err
	}
	s.did(c, wire.Event{Kind: events.WorkerReleased, Name: lease.Pool, WorkerID: &lease.WorkerID})
	noStore(c)
	return c.NoContent(http.StatusNoContent)
}

// workerOf reads pool and worker id from the path and the proof of the lease from the header.
func workerOf(c echo.Context) (lease workerlease.Lease, err error) {
	if lease.Pool, err = name(c, "pool"); err != nil {
		return lease, err
	}
	text, err := segmentOf(c, "worker_id")
	if err != nil {
		return lease, err
	}
	const most = 1<<workerlease.MaxBits - 1
	lease.WorkerID, err = strconv.Atoi(text)
	if err != nil || lease.WorkerID < 0 || lease.WorkerID > most || strconv.Itoa(lease.WorkerID) != text {
		return lease, invalid("worker_id", "a whole number from 0 to "+strconv.Itoa(most))
	}
	lease.Token, err = leaseToken(c)
	return lease, err
}

func (s *Server) listPools(c echo.Context) error {
	n, err := queryInt(c, "n", 100, 1, workerlease.MaxNames)
	if err != nil {
		return err
	}
	prefix, cursor, err := queryPage(c)
	if err != nil {
		return err
	}
	names, more, err := pageOf(c, prefix, cursor, int(n), itself, listNames(c, s.pools.Names))
	if err != nil {
		return err
	}
	page := wire.WorkerPools{Pools: []wire.WorkerPool{}}
	for _, pool := range names {
		ring, err := s.pools.Ring(c.Request().Context(), pool, 0, 1)
		if errors.Is(err, workerlease.ErrUnknown) || errors.Is(err, workerlease.ErrQuarantined) {
			continue // it is listed and lost, and may wait for its first grant
		}
		if err != nil {
			return err
		}
		page.Pools = append(page.Pools, poolOf(pool, ring))
	}
	if more && len(names) > 0 {
		page.Next = names[len(names)-1]
	}
	noStore(c)
	return c.JSON(http.StatusOK, page)
}

func (s *Server) ring(c echo.Context) error {
	pool, err := name(c, "pool")
	if err != nil {
		return err
	}
	from, err := queryInt(c, "from", 0, 0, 1<<workerlease.MaxBits-1)
	if err != nil {
		return err
	}
	n, err := queryInt(c, "n", 1024, 1, workerlease.MaxSlots)
	if err != nil {
		return err
	}
	ring, err := s.pools.Ring(c.Request().Context(), pool, int(from), int(n))
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, ringPage(pool, ring, int(from)))
}

// ringPage writes a page of the ring.
func ringPage(pool string, ring workerlease.Ring, from int) wire.WorkerRing {
	page := wire.WorkerRing{WorkerPool: poolOf(pool, ring), ServerTime: ring.Now, Slots: []wire.WorkerSlot{}}
	for _, slot := range ring.Slots {
		page.Slots = append(page.Slots, wire.WorkerSlot{
			WorkerID: slot.WorkerID, State: string(slot.State), Holder: slot.Identity, Fence: slot.Fence, NotBefore: slot.NotBefore, NotAfter: slot.NotAfter,
		})
	}
	if end := from + len(ring.Slots); len(ring.Slots) > 0 && end < page.Size {
		page.Next = &end
	}
	return page
}
