package workerlease

import (
	"context"
	"errors"
	"sync"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
)

// unanswered are nonces of requests of which it is not known whether they were granted. No caller
// has them, so the next request for the pool asks with one of them: it gets the worker id that was
// granted, where each would use up another. It is safe for concurrent use.
type unanswered struct {
	mu  sync.Mutex
	all map[asker][]string
	n   int
}

// asker is what a grant is for.
type asker struct{ pool, identity string }

// maxUnanswered is how many are remembered. A worker id of another one is free when its TTL has
// passed.
const maxUnanswered = 1000

func (u *unanswered) put(by asker, nonce string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n >= maxUnanswered {
		return
	}
	if u.all == nil {
		u.all = map[asker][]string{}
	}
	u.all[by] = append(u.all[by], nonce)
	u.n++
}

// take returns a nonce that no other caller gets, the oldest first, or a new one.
func (u *unanswered) take(by asker) (nonce string, again bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.all[by]
	switch len(list) {
	case 0:
		return secret.New(), false
	case 1:
		delete(u.all, by)
	default:
		u.all[by] = list[1:]
	}
	u.n--
	return list[0], true
}

// ask asks for a lease with the nonce of an earlier request that had no answer, if there is one.
func (p *Pools) ask(ctx context.Context, pool string, request Request) (Lease, error) {
	by := asker{pool, request.Identity}
	nonce, again := p.unanswered.take(by)
	lease, err := p.acquire(ctx, pool, request, nonce)
	if again && err == nil && lease.NotAfter.Sub(lease.Now) < lease.TTL { // it was granted then
		if lease, err = p.Renew(ctx, lease, request.Ack); errors.Is(err, redisstore.ErrLost) {
			return p.ask(ctx, pool, request)
		}
	}
	if err != nil && (again || errors.Is(err, redisstore.ErrUnknownOutcome)) {
		p.unanswered.put(by, nonce)
		return Lease{}, err
	}
	return lease, err
}
