package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

// Operation is an operation as operators see it. It holds no token and no key.
type Operation struct {
	// which handlers get as well: the service's own records have the operation under it
	Name  string
	State State     //
	Route string    // of the newest attempt; "" = not known
	Since time.Time // since when it is in doubt; the zero time = it is not
	// of one in doubt: from its attempt's claim to the end of the lease; 0 = not known
	RanFor    time.Duration
	Attempts  int       // how many were granted
	Fence     int64     // of the newest attempt
	RequestID string    // of the newest attempt; "" = not known
	ExpiresAt time.Time // when the record goes
	Decision  Decision  // of an operator, the last one; "" = none
}

// Decision is an operator's decision about an operation in doubt after checking its effect.
type Decision string

// The decisions of an operator.
const (
	// Happened means that it has had its effect: its answer is recorded, and every repeat gets it.
	Happened Decision = "completed"
	// NotBegun means that it has had no effect: the next request may begin, with a larger fence.
	NotBegun Decision = "not-begun"
	// Refuse lets no request begin; repeats get an error that says that an operator has closed it.
	Refuse Decision = "refused"
)

// InDoubt lists the operations in doubt whose name or route begins with a prefix, the longest in
// doubt first, page by page. It ends with the first error. It needs the role admin.
func (c *Client) InDoubt(ctx context.Context, prefix string) iter.Seq2[Operation, error] {
	return list(ctx, c, "list operations in doubt", "/token?state=in-doubt", prefix,
		func(page api.Operations) ([]api.Operation, string) { return page.Operations, page.Next }, operation)
}

// Operation returns one operation; ErrUnknownToken if it has expired, was lost, or never was.
func (c *Client) Operation(ctx context.Context, name string) (Operation, error) {
	get := call{op: "show operation", name: name, method: http.MethodGet, path: "/operation/" + name, status: http.StatusOK}
	shown, err := ask(ctx, c.onOperation, get, func(shown api.Operation) bool { return shown.Operation == name })
	return operation(shown), err
}

// Settlement ends the doubt about an operation.
type Settlement struct {
	Decision Decision
	Answer   Answer // to record with Happened; NotKept is ignored
	Reason   string // up to 500 characters, kept in the service's events and log
}

// Settle ends the doubt about an operation, by its name. The errors: ErrAttemptRunning (RetryAfter
// is its remaining lease), ErrNotInDoubt, ErrUnknownToken; ErrUnknownOutcome and ErrUnavailable:
// settle it again, which is harmless. It needs the role admin.
func (c *Client) Settle(ctx context.Context, name string, s Settlement) error {
	request := api.Settlement{Outcome: string(s.Decision), Reason: s.Reason}
	if s.Decision == Happened {
		request.Status, request.Headers, request.Body = cmp.Or(s.Answer.Status, http.StatusOK), s.Answer.Header, s.Answer.Body
	}
	return c.onOperation(ctx, call{
		op: "settle operation", name: name, method: http.MethodPost, path: "/operation/" + name + "/settle", body: request,
		status: http.StatusNoContent,
	})
}

// onOperation makes a call about an operation whose name can stand in a path.
func (c *Client) onOperation(ctx context.Context, asked call) error {
	if !names.Digested.MatchString(asked.name) {
		return asked.invalid("an operation's name has 32 characters of A-Z a-z 0-9 _ -")
	}
	return c.exchange(ctx, asked)
}

func operation(shown api.Operation) Operation {
	o := Operation{
		Name: shown.Operation, State: State(shown.State), Route: shown.Route, Since: shown.Since, Attempts: shown.Attempts,
		Fence:     shown.Fence,
		RequestID: shown.RequestID, ExpiresAt: shown.ExpiresAt, Decision: Decision(shown.Decision),
	}
	if shown.RanForMs != nil {
		o.RanFor = time.Duration(*shown.RanForMs) * time.Millisecond
	}
	return o
}
