package server

import (
	"net/http"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// maxOperations is how many operations a page has at most.
const maxOperations = 1000

// listOperations lists the operations in doubt, the one that is so for longest first. They have no
// names that a caller's rights could be limited to.
func (s *Server) listOperations(c echo.Context) error {
	if err := mayTouch(c, "state", ""); err != nil {
		return err
	}
	if c.QueryParam("state") != string(idempotency.InDoubt) {
		return invalid("state", "in-doubt: no other tokens are listed")
	}
	n, err := queryInt(c, "n", 100, 1, maxOperations)
	if err != nil {
		return err
	}
	prefix, cursor := c.QueryParam("prefix"), c.QueryParam("cursor")
	if utf8.RuneCountInString(prefix) > names.Max {
		return invalid("prefix", "the beginning of an operation's name or route, up to 200 characters")
	}
	list, next, err := s.tokens.InDoubt(c.Request().Context(), idempotency.DoubtPage{Prefix: prefix, Cursor: cursor, Max: int(n)})
	if err != nil {
		return err
	}
	page := wire.Operations{Operations: []wire.Operation{}, Next: next}
	for _, operation := range list {
		page.Operations = append(page.Operations, wireOperation(operation))
	}
	noStore(c)
	return c.JSON(http.StatusOK, page)
}

// showOperation shows one operation to those who know its name, which cannot be guessed.
func (s *Server) showOperation(c echo.Context) error {
	name, err := operationOf(c)
	if err != nil {
		return err
	}
	operation, err := s.tokens.Operation(c.Request().Context(), name)
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, wireOperation(operation))
}

func wireOperation(o idempotency.Operation) wire.Operation {
	shown := wire.Operation{
		Operation: o.Name, State: string(o.State), Route: o.Route, Attempts: o.Attempts, Fence: o.Fence, RequestID: o.RequestID,
		Policy: string(o.Policy), Began: o.Began, LeaseUntil: o.Until, ExpiresAt: o.ExpiresAt, Decision: string(o.Decision),
	}
	if o.State == idempotency.InDoubt {
		shown.Since = o.Until
		if !o.Began.IsZero() {
			shown.RanFor = new(o.Until.Sub(o.Began).Milliseconds())
		}
	}
	return shown
}

// settleOperation ends the doubt about an operation, as an operator has found out what became of
// it.
func (s *Server) settleOperation(c echo.Context) error {
	if err := mayTouch(c, "operation", ""); err != nil {
		return err
	}
	name, err := operationOf(c)
	if err != nil {
		return err
	}
	var request wire.Settlement
	if err := body(c, &request); err != nil {
		return err
	}
	settlement, err := settlementOf(request)
	if err != nil {
		return err
	}
	if err := s.tokens.Settle(c.Request().Context(), name, settlement); err != nil {
		return err
	}
	s.tellSettled(c, name, request)
	noStore(c)
	return c.NoContent(http.StatusNoContent)
}

// tellSettled keeps who has settled an operation, how and why.
func (s *Server) tellSettled(c echo.Context, name string, request wire.Settlement) {
	by := caller(c).Principal
	s.did(c, wire.Event{Kind: events.OperationSettled, Operation: name, Outcome: request.Outcome, By: by, Reason: request.Reason})
	s.log.InfoContext(c.Request().Context(), "an operation in doubt was settled",
		"operation", name, "outcome", request.Outcome, "by", by, "key_id", caller(c).KeyID, "reason", request.Reason)
}

var operationForm = names.NewForm("A-Za-z0-9_-", 32, 32)

func operationOf(c echo.Context) (string, error) {
	name, err := segmentOf(c, "operation")
	if err == nil && !operationForm.MatchString(name) {
		err = &fault{wire.InvalidName, "operation", "32 characters of A–Z a–z 0–9 _ -, as GET /token?state=in-doubt lists it"}
	}
	return name, err
}

// maxReason is how many characters a reason has at most.
const maxReason = 500

func settlementOf(request wire.Settlement) (idempotency.Settlement, error) {
	settlement := idempotency.Settlement{Decision: idempotency.Decision(request.Outcome)}
	if utf8.RuneCountInString(request.Reason) > maxReason {
		return settlement, invalid("reason", "up to 500 characters")
	}
	switch settlement.Decision {
	case idempotency.NotBegun, idempotency.Refuse:
		if request.Status != 0 || len(request.Headers) > 0 || len(request.Body) > 0 {
			return settlement, invalid("status", "an answer belongs to the outcome completed alone")
		}
		return settlement, nil
	case idempotency.Happened:
		answer, err := checkedAnswer(wire.Answer{Status: request.Status, Headers: request.Headers, Body: request.Body})
		settlement.Answer = answer
		return settlement, err
	}
	return settlement, invalid("outcome", "completed, not-begun or refused")
}
