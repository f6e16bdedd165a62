package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// LimitRate is how much may be taken from a rate limit.
type LimitRate struct {
	N     int           // so much in each span of Per, 1 to 1,000,000
	Per   time.Duration // 1 ms to 366 days
	Burst int           // so much at once, to 1,000,000; 0 = N
}

// LimitState is a rate limit after a call.
type LimitState struct {
	Remaining int           // so much can be taken at once
	Reset     time.Duration // until all of the burst can be, if nothing is taken meanwhile
}

// TakeLimit takes a cost from the rate limit of a name, all of it or nothing. ErrLimitReached:
// there is no room for it now; Error.Wait is when there is, if nothing else is taken meanwhile, and
// the state is what is left. A negative cost gives back what an earlier call took, for the role
// admin. A cost of 0 takes nothing, and returns the state. All callers of a name state the same
// rate.
//
// With ErrUnavailable nothing is decided: go on or do not, as suits the work. After
// ErrUnknownOutcome the cost may have been taken.
func (c *Client) TakeLimit(ctx context.Context, name string, rate LimitRate, cost int) (LimitState, error) {
	take := call{op: "take from limit", name: name, method: http.MethodPost, path: "/limit/" + name, body: api.LimitRequest{
		Rate: new(int64(rate.N)), PerMs: new(millis(rate.Per)), Burst: given(int64(rate.Burst)), Cost: new(int64(cost)),
	}}
	taken, err := ask(ctx, c.onNamed, take, func(taken api.LimitTaken) bool {
		return taken.Allowed && taken.Remaining >= 0 && taken.ResetMs >= 0
	})
	if failure, is := errors.AsType[*Error](err); is {
		return failure.limit, err
	}
	return LimitState{taken.Remaining, time.Duration(taken.ResetMs) * time.Millisecond}, err
}

// ResetLimit forgets what is in use of the rate limit of a name. Repeating it is harmless.
func (c *Client) ResetLimit(ctx context.Context, name string) error {
	return c.onNamed(ctx, call{op: "reset limit", name: name, method: http.MethodDelete, path: "/limit/" + name})
}
