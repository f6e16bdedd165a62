package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

// InDoubt lists the operations in doubt whose name or route begins with a prefix, the longest in
// doubt first, page by page. It ends with the first error. It needs the role admin.
func (c *Client) InDoubt(ctx context.Context, prefix string) iter.Seq2[Operation, error] {
	return list(ctx, c, "list operations in doubt", "/operation?state=in-doubt", prefix,
		func(page api.Operations) ([]Operation, string) { return page.Operations, page.Next })
}

// Operation returns one operation; ErrUnknownOperation if it has expired, was lost, or never was.
func (c *Client) Operation(ctx context.Context, name string) (Operation, error) {
	get := call{op: "show operation", name: name, method: http.MethodGet, path: "/operation/" + name}
	return ask(ctx, c.onOperation, get, func(shown Operation) bool { return shown.Operation == name })
}

// Settlement ends the doubt about an operation.
type Settlement struct {
	Decision Decision
	Answer   Answer // to record with DecisionHappened; NotKept is ignored
	Reason   string // up to 500 characters, kept in the service's events and log
	Lease    string // of a [Resolving]; "" = an operator has decided
}

// Settle ends the doubt about an operation, by its name. The errors: ErrAttemptRunning (RetryAfter
// is the remaining lease of its attempt or resolver), ErrNotInDoubt, ErrUnknownOperation;
// ErrSuperseded if the lease was lost; ErrUnknownOutcome and ErrUnavailable: settle it again, which
// is harmless. Without a lease it needs the role admin.
func (c *Client) Settle(ctx context.Context, name string, s Settlement) error {
	request := api.Settlement{Outcome: s.Decision, Reason: s.Reason}
	if s.Decision == DecisionHappened {
		request.Status, request.Headers, request.Body = cmp.Or(s.Answer.Status, http.StatusOK), s.Answer.Header, s.Answer.Body
	}
	settle := call{
		op: "settle operation", name: name, method: http.MethodPost, path: "/operation/" + name + "/settle", lease: s.Lease, body: request,
	}
	return c.onOperation(ctx, settle)
}

// onOperation makes a call about an operation whose name can stand in a path.
func (c *Client) onOperation(ctx context.Context, asked call) error {
	if !names.Digested.MatchString(asked.name) {
		return asked.invalid("an operation's name has 32 characters of A-Z a-z 0-9 _ -")
	}
	return c.exchange(ctx, asked)
}
