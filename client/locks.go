package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// Lock returns the holders and waiters of a lock, at one instant of the Redis server's time. A lock
// that is not in use has none.
func (c *Client) Lock(ctx context.Context, name string) (LockState, error) {
	get := call{op: "look at lock", name: name, method: http.MethodGet, path: "/lock/" + name}
	return ask(ctx, c.onNamed, get, func(shown LockState) bool { return shown.Name == name && shown.Holders != nil })
}

// Locks lists the locks that are held and whose names begin with a prefix, in the order of their
// bytes, page by page. It ends with the first error. A lock is on the list from its grant or, if it
// was acquired on Redis itself, a quarter of a second later on; those of plain clients of redislock
// are not.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[LockState, error] {
	return list(ctx, c, "list locks", "/lock", prefix,
		func(page api.Locks) ([]LockState, string) { return page.Locks, page.Next })
}

// BreakLock takes a lock from the holder with that fence; 0 is a plain client of redislock. It
// returns a new fence, larger than the holder's: a resource that has seen it refuses the holder
// from then on, and the holder learns of it at its next renewal. The lock goes to the next waiter.
// ErrNotFound: there is no holder with that fence.
func (c *Client) BreakLock(ctx context.Context, name string, fence int64) (int64, error) {
	force := call{op: "break lock", name: name, method: http.MethodDelete, path: "/lock/" + name + "?force=" + strconv.FormatInt(fence, 10)}
	broken, err := ask(ctx, c.onNamed, force, func(broken api.LockBroken) bool { return broken.Name == name && broken.Fence > fence })
	return broken.Fence, err
}

type lockGrant struct {
	name  string
	token string // secret
	fence int64
	since time.Time
	ttl   time.Duration
}

func (r LockRequest) wire(wait time.Duration) api.LockRequest {
	return api.LockRequest{
		Owner: r.Owner, Mode: r.Mode, WaitMs: new(millis(wait)),
		TTLMs: givenMillis(r.TTL), Permits: given(int64(r.Permits)), Take: given(int64(r.Take)),
	}
}

// grantLock asks once for a lock. The request may take its wait and the client's timeout. With a
// place, a secret of the caller's, it keeps its place in the queue until the next such request.
func (c *Client) grantLock(ctx context.Context, name string, request LockRequest, wait time.Duration, place string) (lockGrant, error) {
	patient := *c
	patient.timeout = max(c.timeout, c.timeout+wait) // which may overflow
	acquire := call{op: "acquire lock", name: name, method: http.MethodPost, path: "/lock/" + name, lease: place,
		body: request.wire(wait), status: http.StatusCreated}
	granted, err := ask(ctx, patient.onNamed, acquire, func(granted api.LockGranted) bool {
		return granted.Name == name && leaseForm.MatchString(granted.Lease) && granted.Fence > 0 && !granted.Since.IsZero() &&
			granted.TTLMs > 0 && (request.TTL == 0 || granted.TTLMs == millis(request.TTL))
	})
	return lockGrant{name, granted.Lease, granted.Fence, granted.Since.Time, time.Duration(granted.TTLMs) * time.Millisecond}, err
}

// renewLock extends a lock's lease to one TTL from now.
func (c *Client) renewLock(ctx context.Context, grant lockGrant) error {
	renew := call{op: "renew lock", name: grant.name, method: http.MethodPut, path: "/lock/" + grant.name,
		lease: grant.token, body: api.LockRenewal{TTLMs: new(millis(grant.ttl))}}
	_, err := ask(ctx, c.onNamed, renew, func(renewed api.LockRenewed) bool {
		return renewed.Name == grant.name && renewed.TTLMs == millis(grant.ttl) && !renewed.ExpiresAt.IsZero()
	})
	return err
}

// discardLock gives a lock back, whether or not the context has ended.
func (c *Client) discardLock(ctx context.Context, grant lockGrant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return c.onNamed(ctx, call{op: "release lock", name: grant.name, method: http.MethodDelete, path: "/lock/" + grant.name,
		lease: grant.token})
}
