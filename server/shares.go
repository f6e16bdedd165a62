package server

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/access"
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
