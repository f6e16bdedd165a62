package workerlease

import "context"

// AcquireAs is Acquire with a nonce of the test's own, as a repeat after a lost reply.
func (p *Pools) AcquireAs(ctx context.Context, pool string, request Request, nonce string) (Lease, error) {
	return p.acquire(ctx, pool, request, nonce)
}
