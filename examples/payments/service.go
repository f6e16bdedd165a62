package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// service is what the routes have in common.
type service struct {
	ledger *ledger
	tokens *idempotency.Tokens
	lease  time.Duration
	log    *slog.Logger
}

func newService(store *redisstore.Store, ledger *ledger, lease time.Duration, log *slog.Logger) *service {
	s := &service{ledger: ledger, lease: lease, log: log}
	s.tokens = idempotency.New(store, idempotency.Config{Logger: log, Error: s.refuseGuarded})
	return s
}

// routes is the whole service on a page.
func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", s.guard("payments", idempotency.PolicyHold, s.pay))
	mux.Handle("POST /transfers", s.guard("transfers", idempotency.PolicyTakeover, s.move))
	mux.Handle("GET /payments", s.answer(http.StatusOK, s.listPayments))
	mux.Handle("GET /accounts", s.answer(http.StatusOK, s.listAccounts))

	mux.Handle("/payments", refuseMethod("GET, HEAD, POST"))
	mux.Handle("/transfers", refuseMethod("POST"))
	mux.Handle("/accounts", refuseMethod("GET, HEAD"))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { notFound.Write(w) })
	return mux
}

// guard puts the middleware before a handler that moves money. The name of the route is part of
// what a key means, so it stays when paths change.
func (s *service) guard(name string, policy idempotency.Policy, work workFunc) http.Handler {
	route := idempotency.Route{Name: name, Scope: name, Policy: policy, Lease: s.lease, MaxBody: maxBody}
	return s.tokens.Middleware(route)(s.answer(http.StatusCreated, work))
}

// workFunc answers a request with a value that becomes JSON, or says why not.
type workFunc func(*http.Request) (any, error)

func (s *service) answer(status int, work workFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, err := s.call(r, work)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value) // the client may have hung up
	})
}

func (s *service) call(r *http.Request, work workFunc) (any, error) {
	if r.URL.RawQuery != "" {
		return nil, invalid("query", "this route takes no parameters")
	}
	return work(r)
}

// pay is guarded under hold. At most one attempt starts for a key, as long as Redis keeps the
// claim; should it not, the ledger finds the payment made.
func (s *service) pay(r *http.Request) (any, error) {
	order, err := paymentOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.known(r, "to", order.To); err != nil {
		return nil, err
	}
	attempt, _ := idempotency.FromContext(r.Context())
	return s.ledger.charge(r.Context(), attempt.Operation, order)
}

// move is guarded under takeover. An attempt that fell silent is replaced by the next one; the
// ledger refuses the old one if it wakes up, and finds the transfer made if it was.
func (s *service) move(r *http.Request) (any, error) {
	order, err := transferOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.known(r, "from", order.From); err != nil {
		return nil, err
	}
	if err := s.known(r, "to", order.To); err != nil {
		return nil, err
	}
	attempt, _ := idempotency.FromContext(r.Context())
	return s.ledger.transfer(r.Context(), attempt.Operation, attempt.Fence, order)
}

func (s *service) known(r *http.Request, field, id string) error {
	there, err := s.ledger.has(r.Context(), id)
	if err == nil && !there {
		err = unknownAccount(field)
	}
	return err
}

func (s *service) listPayments(r *http.Request) (any, error) { return s.ledger.payments(r.Context()) }

func (s *service) listAccounts(r *http.Request) (any, error) { return s.ledger.accounts(r.Context()) }

func refuseMethod(allow string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allow)
		notAllowed.Write(w)
	})
}
