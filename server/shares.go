package server

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// DefaultLockWaits is how many requests may wait for locks at once where nothing else is set.
const DefaultLockWaits = 2000

// maxStreams is how many requests a connection of HTTP/2 may have under way: with 100, requests
// without a body on 2,000 connections took more memory than a pod has (TestMemoryUnderAttackByTLS…
// in internal/cli). net/http's own bound is 250.
const maxStreams = 32

// owner is the principal of a request: whose place a pool, a tag or a wait takes.
func owner(ctx context.Context) string { return access.From(ctx).Principal }

// quotas bound how many requests are under way at once, and how many of these wait for locks. Each
// principal has its share. Over HTTP/1 the bound on connections is one on requests as well; over
// HTTP/2 a connection has many.
type quotas struct{ requests, lockWaits share.Quota }

func newQuotas(config Config) *quotas {
	q := &quotas{
		requests:  share.Quota{Most: config.MaxConnections, Lone: config.Access == nil},
		lockWaits: share.Quota{Most: config.LockWaits, Lone: config.Access == nil},
	}
	if q.requests.Most == 0 {
		q.requests.Most = frontdoor.DefaultMaxConnections
	}
	if q.lockWaits.Most == 0 {
		q.lockWaits.Most = DefaultLockWaits
	}
	return q
}

// crowded is the error of a request for which its principal has no place now.
type crowded struct{ what string }

func (c *crowded) Error() string { return c.what }

func (c *crowded) problem() wire.Problem {
	problem := wire.NewProblem(wire.TooManyRequests, c.what)
	problem.RetryAfter = time.Second
	return problem
}

// placeFor takes a place of a quota for a principal. leave gives it back.
func placeFor(of *share.Quota, principal, what string) (leave func(), err error) {
	leave, ok := of.Take(principal)
	if !ok {
		return nil, &crowded{what}
	}
	return leave, nil
}
