package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// problem is an error as the client gets it (RFC 9457). Those of the middleware come from
// idempotency.Problem and have the same members.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
	Field     string `json:"field,omitempty"` // the part of the request that is wrong
}

// Write answers with the problem.
func (p problem) Write(w http.ResponseWriter) {
	p.Type = "/problems/" + p.Code
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Retryable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	body, err := json.Marshal(p)
	if err != nil {
		return // strings, numbers and booleans always marshal
	}
	_, _ = w.Write(append(body, '\n')) // the client may have hung up
}

// fault is a request that is wrong, whatever the ledger holds.
type fault struct{ problem }

func (f *fault) Error() string { return f.Detail }

func invalid(field, detail string) error {
	return &fault{problem{
		Title: "The request is not valid", Status: http.StatusBadRequest, Detail: field + ": " + detail,
		Code: "invalid-request", Field: field,
	}}
}

func unknownAccount(field string) error {
	return &fault{problem{
		Title: "There is no such account", Status: http.StatusUnprocessableEntity, Detail: "Nothing was moved. GET /accounts lists the accounts.",
		Code: "unknown-account", Field: field,
	}}
}

var (
	insufficientFunds = problem{
		Title: "The account holds too little", Status: http.StatusConflict, Code: "insufficient-funds",
		Detail: "Nothing was moved, and a repeat with the same key hears the same. To try again later is a new transfer with a new key.",
	}
	ledgerUnavailable = problem{
		Title: "The ledger is not available", Status: http.StatusServiceUnavailable, Code: "ledger-unavailable", Retryable: true,
		Detail: "Nothing was done. Send the same request with the same key again.",
	}
	notFound = problem{
		Title: "There is nothing here", Status: http.StatusNotFound, Code: "not-found",
		Detail: "There are /payments, /transfers and /accounts.",
	}
	notAllowed = problem{
		Title: "The path does not take this method", Status: http.StatusMethodNotAllowed, Code: "method-not-allowed",
		Detail: "The Allow header lists the methods that it takes.",
	}
)

// refuse answers with what an error is, and says first what becomes of the attempt, which decides
// what a repeat will hear:
//
//   - Release, if this attempt provably did nothing: the key is free again, and the same or a
//     corrected request may run.
//   - InDoubt, if it is not this attempt that knows the outcome: the next one may run under
//     takeover, and finds out in the ledger.
//   - Neither, if the refusal is the outcome: it is recorded and replayed.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	attempt, guarded := idempotency.FromContext(r.Context())
	if !guarded {
		attempt = &idempotency.Attempt{} // of a route that only reads
	}
	wrong, isFault := errors.AsType[*fault](err)
	switch {
	case isFault:
		attempt.Release()
		wrong.Write(w)
	case errors.Is(err, errFunds):
		insufficientFunds.Write(w)
	case errors.Is(err, errOther):
		attempt.Release()
		writeProblem(w, idempotency.ErrMismatch)
	case errors.Is(err, errSuperseded):
		attempt.Abandon()
		s.log.Warn("the fence refused an attempt that a newer one has overtaken", "attempt", attempt.Number, "fence", attempt.Fence)
		writeProblem(w, idempotency.ErrSuperseded)
	case errors.Is(err, errUnknown):
		attempt.Abandon()
		s.log.Error("a commit failed, and may have taken effect", "error", err)
		writeProblem(w, redisstore.ErrUnknownOutcome)
	default:
		attempt.Release()
		s.log.Error("the ledger failed", "error", err)
		ledgerUnavailable.Write(w)
	}
}

// refuseGuarded answers for the middleware.
func (s *service) refuseGuarded(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		s.log.Error("a key could not be claimed", "error", err)
	}
	writeProblem(w, err)
}

// writeProblem answers with an error of the middleware, or with one that says the same.
func writeProblem(w http.ResponseWriter, err error) {
	problem, _ := idempotency.Problem(err)
	problem.Write(w)
}
