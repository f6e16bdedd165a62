package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// maxOperations is how many operations a page has at most.
const maxOperations = 1000

// operations are the handlers for operators of operations in doubt.
type operations struct {
	tokens    *idempotency.Tokens
	journal   *journal
	principal func(*http.Request) (string, error)
	log       *slog.Logger
	metrics   *metrics.Service
}

func (h *operations) routes(at *router) {
	at.admin.handle("GET /operation", "idempotency.InDoubt", pagePrice, h.list, allowQuery("state", "prefix", "cursor", "n"))
	at.read.handle("GET /operation/:operation", "idempotency.Operation", smallPrice, h.get, no)
	// of an operation that is not the caller's: admin. Without a lease: admin
	at.use.handle("POST /operation/:operation/resolve", "idempotency.BeginResolving", smallPrice, h.resolve, no)
	at.use.handle("POST /operation/:operation/settle", "idempotency.Settle", smallPrice, h.settle, no)
	at.admin.where(present).handle("DELETE /operation/:operation", "idempotency.Forget", smallPrice, h.forget, no)
}

// list lists the operations in doubt, the oldest doubt first. They have no names that a caller's
// rights could be limited to.
func (h *operations) list(r *request) error {
	r.mayTouch("state", "")
	if r.QueryParam("state") != string(idempotency.StateInDoubt) {
		r.invalid("state", "in-doubt: no other operations are listed")
	}
	prefix, n := r.QueryParam("prefix"), int(r.int("n", 100, 1, maxOperations))
	if utf8.RuneCountInString(prefix) > names.Max {
		r.invalid("prefix", "the beginning of an operation's name or route, up to 200 characters")
	}
	if r.err != nil {
		return r.err
	}
	found, next, err := h.tokens.List(r.ctx(), prefix, r.QueryParam("cursor"), n)
	if errors.Is(err, idempotency.ErrCursor) {
		return invalid("cursor", "next of a page of this list")
	}
	if err != nil {
		return err
	}
	page := api.Operations{Operations: []api.Operation{}, Next: next}
	for _, operation := range found {
		page.Operations = append(page.Operations, wireOperation(operation))
	}
	return r.answer(http.StatusOK, page)
}

// get shows one operation by its name to its principal, and to operators whose rights are over all
// names: a name can be computed by whoever knows principal, scope and key.
func (h *operations) get(r *request) error {
	name := operationName(r)
	if r.err != nil {
		return r.err
	}
	operation, err := h.ofCaller(r, name)
	return r.result(wireOperation(operation), err)
}

// ofCaller returns an operation that the caller may know of: its own one, or any one of an
// operator's whose rights are over all names.
func (h *operations) ofCaller(r *request, name string) (idempotency.Operation, error) {
	operation, err := h.tokens.Operation(r.ctx(), name)
	if who := caller(r); err == nil && (!who.May(access.Admin) || !who.Names.Allow("")) {
		principal, unknown := h.principal(r.Request())
		if err = unknown; err == nil && !operation.IsOf(principal) {
			err = idempotency.ErrUnknownOperation
		}
	}
	return operation, err
}

// resolve begins to find out what became of an operation in doubt.
func (h *operations) resolve(r *request) error {
	name, lease := operationName(r), r.chosenLease()
	var asked api.ResolveRequest
	r.body(&asked)
	ends := lease != "" && asked.LeaseMs != nil && *asked.LeaseMs == 0
	length := time.Duration(0)
	if !ends {
		length = attemptLease(r, asked.LeaseMs)
	}
	if length > idempotency.MaxResolving {
		r.invalid("lease_ms", fmt.Sprintf("100 to %d, or 0 to end it", idempotency.MaxResolving.Milliseconds()))
	}
	if r.err != nil {
		return r.err
	}
	if _, err := h.ofCaller(r, name); err != nil {
		return err
	}
	if ends {
		if err := h.tokens.EndResolving(r.ctx(), name, lease); err != nil {
			return err
		}
		return r.done()
	}
	begun, err := h.tokens.BeginResolving(r.ctx(), name, lease, length)
	return r.result(api.Resolving{Lease: begun.LeaseToken, Fence: begun.Fence, LeaseUntil: api.At(begun.Until), Asked: begun.Asked}, err)
}

// forget has the answer of an operation forgotten, so that the next claim is granted.
func (h *operations) forget(r *request) error {
	r.mayTouch("operation", "")
	name := operationName(r)
	r.noFields()
	if r.err != nil {
		return r.err
	}
	if err := h.tokens.Forget(r.ctx(), name); err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.OperationForgotten, Operation: name, By: caller(r).Principal})
	return r.done()
}

func wireOperation(o idempotency.Operation) api.Operation {
	shown := api.Operation{
		Operation: o.Name, State: api.State(o.State), Route: o.Route, Attempts: o.Attempts, Fence: o.Fence, RequestID: o.RequestID,
		Policy: string(o.Policy), Began: api.At(o.Began), LeaseUntil: api.At(o.Until), ExpiresAt: api.At(o.ExpiresAt),
		Decision: api.Decision(o.Decision),
	}
	if o.State == idempotency.StateInDoubt {
		shown.Since = api.At(o.Until)
		if !o.Began.IsZero() {
			shown.RanForMs = new(o.Until.Sub(o.Began).Milliseconds())
		}
	}
	return shown
}

// settle ends the doubt about an operation, with an operator's decision, or with what a resolver
// has found out, whose lease proves that it may.
func (h *operations) settle(r *request) error {
	lease := ""
	if r.hasLease() {
		lease = r.lease()
	} else {
		r.mustBe(access.Admin, "operation")
		r.mayTouch("operation", "")
	}
	name := operationName(r)
	var asked api.Settlement
	r.body(&asked)
	settlement := settlementOf(r, asked)
	settlement.LeaseToken = lease
	if lease != "" && settlement.Decision == idempotency.DecisionRefused {
		r.invalid("outcome", "completed or not-begun: an operator alone refuses, without "+leaseHeader)
	}
	if r.err != nil {
		return r.err
	}
	if lease != "" {
		if _, err := h.ofCaller(r, name); err != nil {
			return err
		}
	}
	if err := h.tokens.Settle(r.ctx(), name, settlement); err != nil {
		return err
	}
	h.metrics.LookAgain()
	by := caller(r).Principal
	h.journal.did(r, api.Event{Kind: events.OperationSettled, Operation: name, Outcome: string(asked.Outcome), By: by, Reason: asked.Reason})
	h.log.InfoContext(r.ctx(), "an operation in doubt was settled",
		"operation", name, "outcome", asked.Outcome, "by", by, "key_id", caller(r).KeyID, "reason", asked.Reason)
	return r.done()
}

func operationName(r *request) string {
	name := r.segment("operation")
	if !names.Digested.MatchString(name) {
		r.fail(&fault{api.InvalidName, "operation", "32 characters of A–Z a–z 0–9 _ -, as GET /operation?state=in-doubt lists it"})
	}
	return name
}

// maxReason is how many characters a reason has at most.
const maxReason = 500

func settlementOf(r *request, asked api.Settlement) idempotency.Settlement {
	settlement := idempotency.Settlement{Decision: idempotency.Decision(asked.Outcome)}
	if utf8.RuneCountInString(asked.Reason) > maxReason {
		r.invalid("reason", "up to 500 characters")
	}
	switch settlement.Decision {
	case idempotency.DecisionNotBegun, idempotency.DecisionRefused:
		if asked.Status != 0 || len(asked.Headers) > 0 || len(asked.Body) > 0 {
			r.invalid("status", "an answer belongs to the outcome completed alone")
		}
	case idempotency.DecisionHappened:
		settlement.Answer = answerOf(r, api.Answer{Status: asked.Status, Headers: asked.Headers, Body: asked.Body})
	default:
		r.invalid("outcome", "completed, not-begun or refused")
	}
	return settlement
}
