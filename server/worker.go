package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (s *Server) acquireWorker(c echo.Context) error {
	pool, err := name(c, "pool")
	if err != nil {
		return err
	}
	request, err := workerRequest(c)
	if err != nil {
		return err
	}
	lease, err := s.pools.Acquire(c.Request().Context(), pool, request)
	if err != nil {
		return err
	}
	fresh(c)
	return c.JSON(http.StatusCreated, wire.WorkerLease{
		WorkerID: lease.WorkerID, Lease: lease.Token, Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: lease.NotAfter,
		TTL: lease.TTL.Milliseconds(), RenewEvery: renewEvery(lease.TTL), Layout: lease.Layout, Epoch: lease.Epoch, ServerTime: lease.Now,
	})
}

// renewEvery is how often a holder renews: three times in a TTL, so that one lost renewal costs nothing.
func renewEvery(ttl time.Duration) int64 { return ttl.Milliseconds() / 3 }

func workerRequest(c echo.Context) (workerlease.Request, error) {
	var asked wire.WorkerRequest
	if err := body(c, &asked); err != nil {
		return workerlease.Request{}, err
	}
	ttl, err := millis("ttl_ms", asked.TTL, workerlease.DefaultTTL, workerlease.MinTTL, workerlease.MaxTTL)
	if err != nil {
		return workerlease.Request{}, err
	}
	if asked.Identity != "" && !nameForm.MatchString(asked.Identity) {
		return workerlease.Request{}, invalid("identity", nameRule)
	}
	shape, err := shapeOf(asked)
	return workerlease.Request{TTL: ttl, Identity: asked.Identity, Shape: shape, WantLayout: asked.Layout != nil, WantEpoch: asked.Epoch != nil}, err
}

// shapeOf reads layout and epoch; what is left out is the default of a pool that is new.
func shapeOf(asked wire.WorkerRequest) (workerlease.Shape, error) {
	text, epoch := snowflake.DefaultLayout, snowflake.DefaultEpoch
	if asked.Layout != nil {
		text = *asked.Layout
	}
	layout, err := snowflake.ParseLayout(text)
	if err != nil {
		return workerlease.Shape{}, invalid("layout", err.Error())
	}
	if asked.Epoch != nil {
		epoch = asked.Epoch.UTC()
	}
	if epoch.Before(time.Unix(0, 0)) || epoch.After(time.Now()) || !epoch.Equal(epoch.Truncate(time.Millisecond)) {
		return workerlease.Shape{}, invalid("epoch", "a whole millisecond from 1970-01-01T00:00:00Z to now")
	}
	if end := layout.Lasts(epoch); end.Before(time.Now()) {
		return workerlease.Shape{}, invalid("layout", "its timestamps, counted from that epoch, ended at "+end.Format(time.RFC3339))
	}
	return workerlease.Shape{Layout: layout.String(), Bits: layout.Worker, Epoch: epoch}, nil
}

func (s *Server) renewWorker(c echo.Context) error {
	pool, id, lease, err := workerOf(c)
	if err != nil {
		return err
	}
	var request wire.RenewRequest
	if err := body(c, &request); err != nil {
		return err
	}
	ttl, err := millis("ttl_ms", request.TTL, 0, workerlease.MinTTL, workerlease.MaxTTL)
	if err != nil {
		return err
	}
	renewed, err := s.pools.Renew(c.Request().Context(), pool, id, lease, ttl)
	if err != nil {
		return err
	}
	fresh(c)
	return c.JSON(http.StatusOK, wire.WorkerRenewed{
		WorkerID: id, NotAfter: renewed.NotAfter, TTL: renewed.TTL.Milliseconds(), RenewEvery: renewEvery(renewed.TTL), ServerTime: renewed.Now,
	})
}

func (s *Server) releaseWorker(c echo.Context) error {
	pool, id, lease, err := workerOf(c)
	if err != nil {
		return err
	}
	if err := s.pools.Release(c.Request().Context(), pool, id, lease); err != nil {
		return err
	}
	fresh(c)
	return c.NoContent(http.StatusNoContent)
}

// workerOf reads pool and worker id from the path and the proof of the lease from the header.
func workerOf(c echo.Context) (pool string, id int, lease string, err error) {
	if pool, err = name(c, "pool"); err != nil {
		return "", 0, "", err
	}
	text, err := segment(c, "worker_id")
	if err != nil {
		return "", 0, "", err
	}
	const most = 1<<workerlease.MaxBits - 1
	id, err = strconv.Atoi(text)
	if err != nil || id < 0 || id > most || strconv.Itoa(id) != text {
		return "", 0, "", invalid("worker_id", "a whole number from 0 to "+strconv.Itoa(most))
	}
	lease, err = leaseToken(c)
	return pool, id, lease, err
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
	fresh(c)
	return c.JSON(http.StatusOK, ringPage(pool, ring, int(from), int(n)))
}

// ringPage writes a page with all its slots, those that were never leased as free ones.
func ringPage(pool string, ring workerlease.Ring, from, n int) wire.WorkerRing {
	page := wire.WorkerRing{
		Pool: pool, Layout: ring.Layout, Epoch: ring.Epoch, Size: 1 << ring.Bits, Used: ring.Used, TTL: ring.TTL.Milliseconds(), ServerTime: ring.Now,
		Slots: []wire.WorkerSlot{},
	}
	end := min(from+n, page.Size)
	for id := from; id < end; id++ {
		slot := wire.WorkerSlot{WorkerID: id, State: string(workerlease.Free)}
		if i := id - from; i < len(ring.Slots) {
			used := ring.Slots[i]
			slot = wire.WorkerSlot{
				WorkerID: id, State: string(used.State), Holder: used.Identity, Fence: used.Fence, NotBefore: used.NotBefore, NotAfter: used.NotAfter,
			}
		}
		page.Slots = append(page.Slots, slot)
	}
	if end < page.Size {
		page.Next = &end
	}
	return page
}
