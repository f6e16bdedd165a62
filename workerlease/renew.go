package workerlease

import (
	"context"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Renew extends an open lease's window to one TTL from now, and returns the renewed lease; a window
// never gets shorter. Pool, WorkerID and Token name the lease. The rest is the holder's proof if
// Redis has lost it: a lease as last granted or renewed is recorded anew while its window is
// provably open; without the proof it is lost. TTL 0 is the pool's. ErrInvalid: it is out of
// bounds. An *OtherPoolError: the lease has another shape than the pool's pin, or another TTL than
// the pool. ErrLost: it has ended, was released, is another's, or is not proven.
func (p *Pools) Renew(ctx context.Context, lease Lease, ack int) (Lease, error) {
	if err := p.check(lease.Pool, lease.TTL); err != nil {
		return Lease{}, err
	}
	if pin, is := p.Pin(lease.Pool); is && lease.Layout != "" && !pin.is(lease) {
		return Lease{}, pin.other()
	}
	nonce, from, ok := openToken(lease.Token)
	if !ok {
		return Lease{}, ErrLost
	}
	// a pool with a leased id is not new
	args := []any{lease.WorkerID, nonce, from, wanted(lease.TTL != 0, milliseconds(lease.TTL)),
		p.config.Skew.Milliseconds(), string(NewPoolsWait)}
	reply, err := onstore.Run(ctx, p.on(ack), scripts.WorkerRenew, p.keys(lease.Pool),
		append(append(args, proof(lease)...), p.longest(lease.Pool))...)
	if err != nil {
		return Lease{}, err
	}
	if reply.Word() != "ok" {
		return Lease{}, p.refusal(lease.Pool, reply)
	}
	err = reply.Scan(&lease.NotAfter, &lease.TTL, &lease.Now)
	return lease, err
}

// is reports whether a lease has its pool's pinned shape.
func (p Pin) is(lease Lease) bool {
	return lease.Layout == p.Shape.Layout && lease.Epoch.Equal(p.Shape.Epoch) && lease.Datacenter == p.Shape.Datacenter
}

// proof is a holder's proof of its lease, as worker_renew takes it. An incomplete one is none.
func proof(lease Lease) []any {
	shape := Shape{Layout: lease.Layout, Datacenter: lease.Datacenter, Epoch: lease.Epoch}
	layout, err := shape.read()
	if lease.NotAfter.IsZero() || err != nil || lease.Identity != "" && !names.Valid(lease.Identity) || lease.Fence <= 0 ||
		lease.Epoch.IsZero() {
		return []any{"", "", "", "", "", "", ""}
	}
	return []any{
		lease.NotAfter.UnixMilli(), lease.Fence, lease.Identity, layout.String(), shape.epoch(),
		strconv.Itoa(shape.Datacenter), layout.Worker,
	}
}

// unsaid is how far ahead of the server's time a holder may have stamped that does not state its
// last timestamp: the longest unit of a timestamp; as much again for the lead of a generator and
// for a local clock that runs fast; and the skew of the servers, since the holder's clock may have
// been anchored at another one.
func (p *Pools) unsaid() time.Duration { return 2*time.Second + p.config.Skew }

// Release ends a lease. Its slot can be granted again at once, for a window that begins at
// usedUntil, the end of the last timestamp that was stamped. With the zero time that is taken for
// two seconds and Skew ahead of the server, which may be another one than the holder's clock was
// set by; the next holder of the id waits for it. Repeating it is harmless. ErrLost: it had ended
// before, or is another's.
func (p *Pools) Release(ctx context.Context, pool string, workerID int, leaseToken string, usedUntil time.Time) error {
	nonce, from, ok := openToken(leaseToken)
	if !ok {
		return ErrLost
	}
	used := ""
	if !usedUntil.IsZero() {
		used = strconv.FormatInt(usedUntil.Add(time.Millisecond-1).UnixMilli(), 10)
	}
	reply, err := onstore.Run(ctx, p.store, scripts.WorkerRelease, p.keys(pool)[:2], workerID, nonce, from, used, p.unsaid().Milliseconds())
	if err != nil {
		return err
	}
	if reply.Word() != "ok" {
		return p.refusal(pool, reply)
	}
	return nil
}
