package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/events"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// workers are the handlers of /worker.
type workers struct {
	pools    *workerlease.Pools
	journal  *journal
	declared func(pool string) // is called when one was
}

func (h *workers) routes(at *router) {
	at.use.handle("POST /worker/:pool", "workerlease.Acquire", smallPrice, h.acquire, no)
	at.admin.where(judged).handle("PUT /worker/:pool", "workerlease.Create", smallPrice, h.create, allowQuery("replace"))
	at.read.handle("GET /worker", "workerlease.List", pagePrice, h.list, allowQuery("prefix", "cursor", "n"))
	at.read.handle("GET /worker/:pool", "workerlease.Ring", pagePrice, h.ring, allowQuery("cursor", "n"))
	leased := at.use.where(present)
	leased.handle("PUT /worker/:pool/:worker_id", "workerlease.Renew", smallPrice, h.renew, no)
	leased.handle("DELETE /worker/:pool/:worker_id", "workerlease.Release", smallPrice, h.release, allowQuery("used_until"))
}

func (h *workers) acquire(r *request) error {
	pool := r.name("pool")
	asked := h.request(r, pool)
	if r.err != nil {
		return r.err
	}
	lease, err := h.pools.Acquire(r.ctx(), pool, asked)
	if err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.WorkerGranted, Name: pool, WorkerID: &lease.WorkerID, Fence: lease.Fence, Holder: lease.Identity})
	return r.answer(http.StatusCreated, api.WorkerLease{
		WorkerID: lease.WorkerID, Lease: lease.Token, Fence: lease.Fence, NotBefore: api.At(lease.NotBefore), NotAfter: api.At(lease.NotAfter),
		TTLMs: lease.TTL.Milliseconds(), RenewEveryMs: renewEvery(lease.TTL), Layout: lease.Layout, Epoch: api.At(lease.Epoch),
		Datacenter: lease.Datacenter, Identity: lease.Identity, ServerTime: api.At(lease.Now),
	})
}

// renewEvery is how often a holder renews: three times in a TTL, so that one may get lost.
func renewEvery(ttl time.Duration) int64 { return ttl.Milliseconds() / 3 }

func (h *workers) request(r *request, pool string) workerlease.Request {
	var asked api.WorkerRequest
	r.body(&asked)
	if asked.Identity != "" && !names.Valid(asked.Identity) {
		r.invalid("identity", nameRule)
	}
	request := h.poolRequest(r, pool, asked.PoolRequest)
	// a caller that may not declare pools does not shape one by asking first
	if !caller(r).May(access.Admin) {
		plain, _ := h.shape(r, pool, api.PoolRequest{})
		request.NewShape = &plain
	}
	request.Identity = asked.Identity
	return request
}

func (h *workers) poolRequest(r *request, pool string, asked api.PoolRequest) workerlease.Request {
	ttl := r.millis("ttl_ms", asked.TTLMs, 0, workerlease.MinTTL, workerlease.MaxTTL)
	shape, layout := h.shape(r, pool, asked)
	if r.err != nil {
		return workerlease.Request{}
	}
	least, most := workerlease.ShortestTTL(layout), h.pools.LongestTTL(pool)
	end, now := layout.Lasts(shape.Epoch), time.Now()
	switch {
	case asked.Epoch != nil && shape.Epoch.After(now):
		r.invalid("epoch", epochRule)
	case (asked.Epoch != nil || asked.Layout != nil) && end.Before(now):
		r.invalid("layout", "its timestamps, counted from that epoch, ended at "+end.Format(time.RFC3339))
	case most < least:
		r.invalid("layout", fmt.Sprintf("%v needs windows of %d milliseconds, to hold whole seconds, and this service allows %d "+
			"(--worker-longest-ttl)", layout, least.Milliseconds(), most.Milliseconds()))
	case ttl > most:
		r.invalid("ttl_ms", fmt.Sprintf("%d milliseconds at most, unless the service allows longer ones (--worker-longest-ttl, "+
			"pools)", most.Milliseconds()))
	case ttl != 0 && ttl < least:
		r.invalid("ttl_ms", fmt.Sprintf("%d to %d milliseconds in layout %v: a window holds whole seconds",
			least.Milliseconds(), most.Milliseconds(), layout))
	}
	return workerlease.Request{
		TTL: ttl, Shape: shape, WantLayout: asked.Layout != nil, WantEpoch: asked.Epoch != nil, WantDatacenter: asked.Datacenter != nil,
	}
}

const epochRule = "a whole millisecond from 1970-01-01T00:00:00Z to now"

// shape reads layout, epoch and datacenter, by default the pool's setting or a new pool's.
func (h *workers) shape(r *request, pool string, asked api.PoolRequest) (workerlease.Shape, snowflake.Layout) {
	text, epoch, datacenter := snowflake.DefaultLayout, snowflake.DefaultEpoch, 0
	if pin, is := h.pools.Pin(pool); is {
		text, epoch, datacenter = pin.Shape.Layout, pin.Shape.Epoch, pin.Shape.Datacenter
	}
	if asked.Layout != nil {
		text = *asked.Layout
	}
	layout, err := snowflake.ParseLayout(text)
	if err != nil {
		r.invalid("layout", err.Error())
		return workerlease.Shape{}, layout
	}
	if layout.Datacenter+layout.Worker > workerlease.MaxBits {
		r.invalid("layout", fmt.Sprintf("a worker id that is leased has at most %d bits with the datacenter's", workerlease.MaxBits))
	}
	if asked.Epoch != nil {
		epoch = asked.Epoch.UTC()
	}
	if epoch.Before(time.Unix(0, 0)) || !epoch.Equal(epoch.Truncate(time.Millisecond)) {
		r.invalid("epoch", epochRule)
	}
	if asked.Datacenter != nil {
		datacenter = *asked.Datacenter
	}
	if asked.Layout != nil && asked.Datacenter == nil {
		// it is not the pool's layout, and the refusal will say so
		datacenter = min(datacenter, 1<<layout.Datacenter-1)
	}
	if most := 1<<layout.Datacenter - 1; datacenter < 0 || datacenter > most {
		r.invalid("datacenter", "0 to "+strconv.Itoa(most)+" in layout "+layout.String())
	}
	return workerlease.Shape{Layout: layout.String(), Datacenter: datacenter, Epoch: epoch}, layout
}

func (h *workers) create(r *request) error {
	pool := r.name("pool")
	var asked api.PoolRequest
	r.body(&asked)
	declare, on := h.pools.Create, vacant
	if r.flag("replace") {
		declare, on = h.pools.Replace, unnamed
		h.keep(r, pool, &asked)
	}
	request := h.poolRequest(r, pool, asked)
	r.require(on)
	if r.err != nil {
		return r.err
	}
	if err := declare(r.ctx(), pool, request.Shape, request.TTL); err != nil {
		return err
	}
	h.declared(pool)
	h.journal.did(r, api.Event{Kind: events.PoolCreated, Name: pool})
	ring, err := h.pools.Ring(r.ctx(), pool, 0, 1)
	if err != nil {
		return err
	}
	r.Response().Header().Set("Location", "/worker/"+pool)
	return r.answer(http.StatusCreated, poolOf(pool, ring))
}

// keep puts what a pool has in the place of what its replacement does not name.
func (h *workers) keep(r *request, pool string, asked *api.PoolRequest) {
	if _, pinned := h.pools.Pin(pool); pinned || r.err != nil {
		return
	}
	ring, err := h.pools.Ring(r.ctx(), pool, 0, 1)
	if err != nil {
		// it has no shape yet
		if !errors.Is(err, workerlease.ErrNotFound) && !errors.Is(err, workerlease.ErrQuarantined) {
			r.fail(err)
		}
		return
	}
	ttl := min(ring.TTL, h.pools.LongestTTL(pool)).Milliseconds()
	asked.TTLMs, asked.Layout = cmp.Or(asked.TTLMs, &ttl), cmp.Or(asked.Layout, &ring.Layout)
	asked.Epoch = cmp.Or(asked.Epoch, new(api.At(ring.Epoch)))
	if layout, err := snowflake.ParseLayout(*asked.Layout); err == nil && layout.Datacenter > 0 {
		asked.Datacenter = cmp.Or(asked.Datacenter, &ring.Datacenter)
	}
}

func poolOf(pool string, ring workerlease.Ring) api.WorkerPool {
	return api.WorkerPool{
		Pool: pool, Layout: ring.Layout, Epoch: api.At(ring.Epoch), Datacenter: ring.Datacenter, Size: 1 << ring.Bits, Used: ring.Used,
		Held:  ring.Held,
		TTLMs: ring.TTL.Milliseconds(), EndsAt: api.At(ring.EndsAt()), QuarantinedMs: ring.Quarantined.Milliseconds(), Unasked: ring.Unasked,
		Reason: ring.Reason,
	}
}

func (h *workers) renew(r *request) error {
	lease := leasedWorker(r)
	h.proof(r, &lease)
	if r.err != nil {
		return r.err
	}
	renewed, err := h.pools.Renew(r.ctx(), lease, 0)
	return r.result(api.WorkerRenewed{
		WorkerID: lease.WorkerID, NotAfter: api.At(renewed.NotAfter), TTLMs: renewed.TTL.Milliseconds(),
		RenewEveryMs: renewEvery(renewed.TTL), ServerTime: api.At(renewed.Now),
	}, err)
}

// proof reads the body of a renewal into the lease.
func (h *workers) proof(r *request, lease *workerlease.Lease) {
	var told api.RenewRequest
	r.body(&told)
	lease.TTL = r.millis("ttl_ms", told.TTLMs, 0, workerlease.MinTTL, h.pools.LongestTTL(lease.Pool))
	lease.Fence, lease.Identity = told.Fence, told.Identity
	if told.NotAfter == nil || told.Layout == "" || told.Epoch == nil {
		return
	}
	shape, _ := h.shape(r, lease.Pool, api.PoolRequest{Layout: &told.Layout, Epoch: told.Epoch, Datacenter: &told.Datacenter})
	lease.NotAfter, lease.Layout, lease.Datacenter, lease.Epoch = told.NotAfter.Time, shape.Layout, shape.Datacenter, shape.Epoch
}

func (h *workers) release(r *request) error {
	lease := leasedWorker(r)
	used := r.time("used_until")
	r.noFields()
	if r.err != nil {
		return r.err
	}
	if err := h.pools.Release(r.ctx(), lease.Pool, lease.WorkerID, lease.Token, used); err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.WorkerReleased, Name: lease.Pool, WorkerID: &lease.WorkerID})
	return r.done()
}

// leasedWorker reads pool and worker id from the path and the proof of the lease from the header.
func leasedWorker(r *request) (lease workerlease.Lease) {
	lease.Pool = r.name("pool")
	text := r.segment("worker_id")
	const most = 1<<workerlease.MaxBits - 1
	var err error
	lease.WorkerID, err = strconv.Atoi(text)
	if err != nil || lease.WorkerID < 0 || lease.WorkerID > most || strconv.Itoa(lease.WorkerID) != text {
		r.invalid("worker_id", "a whole number from 0 to "+strconv.Itoa(most))
	}
	lease.Token = r.lease()
	return lease
}

const maxPools = 1000 // of a page

func (h *workers) list(r *request) error {
	asked := r.list(maxPools)
	if r.err != nil {
		return r.err
	}
	var (
		mu      sync.Mutex
		waiting []api.WaitingPool
	)
	pools, next, err := listed(r.ctx(), asked, h.pools.List, func(ctx context.Context, pool string) (api.WorkerPool, bool, error) {
		ring, err := h.pools.Summary(ctx, pool)
		if errors.Is(err, workerlease.ErrNotFound) { // it is listed and lost
			return api.WorkerPool{}, false, nil
		}
		if errors.Is(err, workerlease.ErrQuarantined) {
			mu.Lock()
			defer mu.Unlock()
			waiting = append(waiting, waitingPool(pool, err))
			return api.WorkerPool{}, false, nil
		}
		return poolOf(pool, ring), true, err
	})
	slices.SortFunc(waiting, func(a, b api.WaitingPool) int { return strings.Compare(a.Pool, b.Pool) })
	return r.result(api.WorkerPools{Pools: pools, Waiting: waiting, Next: next}, err)
}

// waitingPool describes a pool that waits for its first grant.
func waitingPool(pool string, refusal error) api.WaitingPool {
	_, isNew := errors.AsType[*workerlease.NewPoolError](refusal)
	wait := redisstore.RetryAfter(refusal)
	return api.WaitingPool{Pool: pool, WaitMs: wait.Milliseconds(), New: isNew, Reason: detail(refusal, workerlease.ErrQuarantined)}
}

func (h *workers) ring(r *request) error {
	pool := r.name("pool")
	from, n := int(r.int("cursor", 0, 0, 1<<workerlease.MaxBits-1)), int(r.int("n", 1024, 1, workerlease.MaxSlots))
	if r.err != nil {
		return r.err
	}
	ring, err := h.pools.Ring(r.ctx(), pool, from, n)
	return r.result(ringPage(pool, ring, from), err)
}

// ringPage writes a page of the ring.
func ringPage(pool string, ring workerlease.Ring, from int) api.WorkerRing {
	page := api.WorkerRing{WorkerPool: poolOf(pool, ring), ServerTime: api.At(ring.Now), Slots: []api.WorkerSlot{}}
	for _, slot := range ring.Slots {
		page.Slots = append(page.Slots, api.WorkerSlot{
			WorkerID: slot.WorkerID, State: string(slot.State), Holder: slot.Identity, Fence: slot.Fence,
			NotBefore: api.At(slot.NotBefore), NotAfter: api.At(slot.NotAfter),
		})
	}
	if end := from + len(ring.Slots); len(ring.Slots) > 0 && end < page.Size {
		page.Next = &end
	}
	return page
}
