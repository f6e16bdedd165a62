package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// PoolShape is the shape of a pool. The zero value of each field means what the service's settings
// say of the pool, else what a pool has that is replaced, else the default beside it.
type PoolShape struct {
	TTL        time.Duration // length of its leases' windows, 100 ms to a day; 30 s
	Layout     string        // of its ids; snowflake.DefaultLayout
	Epoch      time.Time     // whole milliseconds; snowflake.DefaultEpoch
	Datacenter *int          // of its ids; 0
}

func (s PoolShape) wire() api.PoolRequest {
	return api.PoolRequest{
		TTLMs: givenMillis(s.TTL), Layout: given(s.Layout), Epoch: moment(s.Epoch), Datacenter: s.Datacenter,
	}
}

// CreatePool declares a pool new: that none of its worker ids is in use anywhere. Its first grant
// then waits for no quarantine. ErrPoolExists: it has granted worker ids, or was declared before;
// the error's Detail has its state. After ErrUnknownOutcome ask again: ErrPoolExists then may mean
// that it was done.
func (c *Client) CreatePool(ctx context.Context, pool string, shape PoolShape) (WorkerPool, error) {
	return c.declarePool(ctx, pool, shape, "create pool", "")
}

// ReplacePool gives a pool another shape and TTL, as CreatePool does where there is none.
// ErrPoolExists: a window of it can still be open, or its state may have been lost; the error's
// RetryAfter is how long that can take. Ids that the pool has made before may be equal to those of
// the new shape: the caller has to know.
func (c *Client) ReplacePool(ctx context.Context, pool string, shape PoolShape) (WorkerPool, error) {
	return c.declarePool(ctx, pool, shape, "replace pool", "?replace=true")
}

func (c *Client) declarePool(ctx context.Context, pool string, shape PoolShape, op, query string) (WorkerPool, error) {
	create := call{op: op, name: pool, method: http.MethodPut, path: "/worker/" + pool + query, body: shape.wire(),
		status: http.StatusCreated}
	return ask(ctx, c.onNamed, create, func(created WorkerPool) bool { return created.Pool == pool && created.Size > 0 })
}

// Pools lists the pools whose names begin with a prefix, in the order of their names. It reads page
// by page, and ends at the first error.
func (c *Client) Pools(ctx context.Context, prefix string) iter.Seq2[WorkerPool, error] {
	return list(ctx, c, "list pools", "/worker", prefix,
		func(page api.WorkerPools) ([]WorkerPool, string) { return page.Pools, page.Next })
}

// WaitingPools lists the pools whose names begin with a prefix and that wait for their first grant:
// they have no ring yet, and no place in [Client.Pools]. It reads page by page, and ends at the
// first error.
func (c *Client) WaitingPools(ctx context.Context, prefix string) iter.Seq2[WaitingPool, error] {
	return list(ctx, c, "list pools", "/worker", prefix, func(page api.WorkerPools) ([]WaitingPool, string) {
		if page.Pools == nil {
			return nil, "" // it is no such page
		}
		return append([]WaitingPool{}, page.Waiting...), page.Next
	})
}

// Ring reads up to n slots (1 to 4096) of a pool from a worker id on. ErrNotFound: the pool has
// granted nothing yet and was not declared.
func (c *Client) Ring(ctx context.Context, pool string, from, n int) (WorkerRing, error) {
	query := url.Values{"cursor": {strconv.Itoa(from)}, "n": {strconv.Itoa(n)}}
	get := call{op: "look at pool", name: pool, method: http.MethodGet, path: "/worker/" + pool + "?" + query.Encode()}
	return ask(ctx, c.onNamed, get, func(page WorkerRing) bool { return page.Pool == pool && page.Size > 0 })
}
