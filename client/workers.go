package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// WorkerRequest describes a worker id to lease. Every field may be left out. A pool's TTL, layout,
// epoch and datacenter are fixed when it is created or by its first grant: the values here are
// those of a new pool, and must match those of an existing one.
type WorkerRequest struct {
	// TTL is the length of a window, 100 ms to a day; 0 = the pool's, 30 s for one that is new.
	// Where it is not 30 s, all clients of a pool have to state it: after a loss of all state it
	// bounds how long a window can still be open.
	TTL time.Duration
	// names the holder: it gets its last worker id again if that window has ended. "" = none
	Identity string
	// as package snowflake writes it; "" = the pool's, snowflake.DefaultLayout for one that is new
	Layout string
	// whole milliseconds; the zero time = the pool's, snowflake.DefaultEpoch for one that is new
	Epoch      time.Time
	Datacenter *int // nil = the pool's, 0 for one that is new
}

func (r WorkerRequest) wire() api.WorkerRequest {
	return api.WorkerRequest{Identity: r.Identity, PoolRequest: PoolShape{r.TTL, r.Layout, r.Epoch, r.Datacenter}.wire()}
}

// moment is a time as it is sent; the zero time is left out.
func moment(at time.Time) *Time {
	if at.IsZero() {
		return nil
	}
	return new(api.At(at))
}

// WorkerLease is a granted worker id. It is a value: any process that has its Token holds the
// lease, so its Token is a secret.
type WorkerLease = holder.Lease

// AcquireWorker leases a worker id. HoldWorker does it, and all that follows. The errors:
// ErrExhausted and ErrQuarantined (RetryAfter is when to ask again), ErrOtherPool; ErrUnavailable
// (nothing was done); ErrUnknownOutcome (a worker id may be taken until its TTL has passed, or the
// service has given it to the next that asks: acquire again).
func (c *Client) AcquireWorker(ctx context.Context, pool string, request WorkerRequest) (WorkerLease, error) {
	acquire := call{op: "acquire worker id", name: pool, method: http.MethodPost, path: "/worker/" + pool, body: request.wire(),
		status: http.StatusCreated}
	granted, err := ask(ctx, c.onNamed, acquire, stampable)
	if err != nil {
		return WorkerLease{}, err
	}
	return WorkerLease{
		Pool: pool, WorkerID: granted.WorkerID, Datacenter: granted.Datacenter, Token: granted.Lease, Fence: granted.Fence,
		Identity:  granted.Identity,
		NotBefore: granted.NotBefore.Time, NotAfter: granted.NotAfter.Time, TTL: time.Duration(granted.TTLMs) * time.Millisecond,
		Layout: granted.Layout, Epoch: granted.Epoch.Time, Now: granted.ServerTime.Time,
	}, nil
}

// stampable reports whether a grant is complete enough to stamp ids with it.
func stampable(lease api.WorkerLease) bool {
	layout, err := snowflake.ParseLayout(lease.Layout)
	switch {
	case err != nil || !leaseForm.MatchString(lease.Lease) || lease.Fence <= 0 || lease.TTLMs <= 0:
		return false
	case lease.NotBefore.IsZero() || !lease.NotAfter.After(lease.NotBefore.Time) || lease.Epoch.IsZero() || lease.ServerTime.IsZero():
		return false
	}
	return lease.WorkerID >= 0 && lease.WorkerID < 1<<layout.Worker && lease.Datacenter >= 0 && lease.Datacenter < 1<<layout.Datacenter
}

// RenewWorker extends an open lease's window to one TTL from now, and returns the renewed lease. It
// sends the whole lease, so that a lease that the store has lost is recorded anew while its window
// is open: renew the lease as the last renewal returned it. Repeating it is harmless. ErrLost: it
// has ended, was released or is another's. ErrUnavailable and ErrUnknownOutcome: do not count on
// more time than before.
func (c *Client) RenewWorker(ctx context.Context, lease WorkerLease) (WorkerLease, error) {
	proof := api.RenewRequest{
		NotAfter: moment(lease.NotAfter), TTLMs: givenMillis(lease.TTL), Fence: lease.Fence, Identity: lease.Identity,
		Layout: lease.Layout, Epoch: moment(lease.Epoch), Datacenter: lease.Datacenter,
	}
	renew := call{op: "renew worker id", method: http.MethodPut, body: proof}
	renewed, err := ask(ctx, c.onLease(lease, ""), renew, func(r api.WorkerRenewed) bool {
		return r.WorkerID == lease.WorkerID && r.TTLMs > 0 && !r.NotAfter.IsZero() && !r.NotAfter.Before(lease.NotAfter) &&
			!r.ServerTime.IsZero()
	})
	if err != nil {
		return WorkerLease{}, err
	}
	lease.NotAfter, lease.TTL, lease.Now = renewed.NotAfter.Time, time.Duration(renewed.TTLMs)*time.Millisecond, renewed.ServerTime.Time
	return lease, nil
}

// ReleaseWorker ends a lease. Its worker id can be granted again at once, for a window that begins
// at usedUntil, the end of the last timestamp that was stamped, as snowflake.Generator.Stop returns
// it; with the zero time, for callers that do not know it, the service's clock skew and two seconds
// later. Nothing may be stamped after that. Repeating it is harmless. ErrLost: it had ended before,
// or is another's.
func (c *Client) ReleaseWorker(ctx context.Context, lease WorkerLease, usedUntil time.Time) error {
	query := ""
	if !usedUntil.IsZero() {
		query = "?used_until=" + url.QueryEscape(usedUntil.UTC().Format(time.RFC3339Nano))
	}
	return c.onLease(lease, query)(ctx, call{op: "release worker id", method: http.MethodDelete})
}

// onLease is how a call about a lease is made, with the proof of it.
func (c *Client) onLease(lease WorkerLease, query string) func(context.Context, call) error {
	return func(ctx context.Context, call call) error {
		call.name, call.path = lease.Pool, "/worker/"+lease.Pool+"/"+strconv.Itoa(lease.WorkerID)+query
		call.lease = lease.Token
		if !leaseForm.MatchString(lease.Token) || lease.WorkerID < 0 {
			return call.invalid("a lease is what AcquireWorker returned")
		}
		return c.onNamed(ctx, call)
	}
}

// onNamed makes a call about something that has a name: a pool, a lock, a counter, a tag. A text
// that cannot be one is not sent: it would be another path.
func (c *Client) onNamed(ctx context.Context, call call) error {
	if !names.InPath(call.name) {
		return call.invalid("a name has " + names.Rule + ", and more than dots")
	}
	return c.exchange(ctx, call)
}
