package server

import (
	"cmp"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/share"
)

// price is what a request of a route may take. It is reserved for the caller before the handler
// begins, beside the caller's place among all requests under way. What depends on the request is
// reserved once it is known: its body, the ids that it asks for, and a recorded answer.
type price struct {
	name string
	// places of which the request takes one; nil = there are as many as requests under way
	places func(*admission) *share.Quota
	memory int64 // bytes
}

// The prices. Each route has one: see [part.add].
var (
	// a few commands of Redis, or a small text.
	smallPrice = &price{name: "small answers"}
	// one script that reads all holders of a lock, and an answer with a hundred of them and of its
	// waiters, with owners of 200 bytes.
	lockPrice = &price{name: "locks", memory: 256 << 10}
	// up to some thousand names with their values, or slots of a ring.
	pagePrice = &price{name: "lists", memory: 2 << 20,
		places: func(a *admission) *share.Quota { return &a.lists }}
	// a text of some hundred kilobytes, for callers without a key as well.
	textPrice = &price{name: "documents", memory: 512 << 10,
		places: func(a *admission) *share.Quota { return &a.documents }}
)

// atOnce is how many requests there may be at once that take a place of a price. A page of a list
// is up to 32 scripts at a time: while all places are taken, other calls wait for 512 scripts.
const atOnce = 16

// pay reserves a price for a caller, and returns what gives it back. The memory is given back with
// the rest of the request's, when the answer has been sent.
func (a *admission) pay(c echo.Context, of *price, who string) (leave func(), err error) {
	if of == smallPrice {
		return func() {}, nil
	}
	leave = func() {}
	if of.places != nil {
		// strangers have a share by their addresses
		leave, err = placeFor(of.places(a), cmp.Or(who, c.RealIP()), "as many "+of.name+" are under way here as may be, or as many of "+
			"this caller; ask for one after the other")
	}
	if err != nil {
		return nil, err
	}
	if err := frontdoor.Reserve(c.Request().Context(), of.memory); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// crowded is the error of a caller that has no place left, or no memory.
type crowded struct{ what string }

func (c *crowded) Error() string { return c.what }

func (c *crowded) problem() api.Problem {
	problem := api.NewProblem(api.TooManyRequests, c.what)
	problem.RetryAfter = time.Second
	return problem
}

// placeFor takes a place of a quota for a caller. leave gives it back.
func placeFor(of *share.Quota, caller, what string) (leave func(), err error) {
	leave, ok := of.Take(caller)
	if !ok {
		return nil, &crowded{what}
	}
	return leave, nil
}

// errShare refuses a request whose caller uses its share of the memory.
var errShare = &crowded{"the requests of this caller that are under way take as much memory as they may; send fewer at once, or smaller " +
	"ones"}
