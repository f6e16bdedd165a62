package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/ledger"
)

// payments are the demo's handlers.
type payments struct {
	ledger *ledger.Ledger
	delay  time.Duration
}

func (h *payments) routes(at *router, guard echo.MiddlewareFunc) {
	at.use.where(judged).handle("POST /payments", "idempotency.Guard", smallPrice, h.pay, no, guard)
	at.read.handle("GET /payments", "ledger.List", smallPrice, h.list, no)
}

// pay is the demo's handler, as a user would write it: check, take effect, answer. It runs once.
func (h *payments) pay(r *request) error {
	attempt, _ := idempotency.FromContext(r.ctx())
	asked := paymentOf(r)
	if r.err != nil {
		attempt.Release()
		return r.err
	}
	payment, err := h.ledger.Charge(r.ctx(), api.Payment{Amount: asked.Amount, Currency: asked.Currency, To: asked.To,
		Fence: attempt.Fence})
	switch {
	case errors.Is(err, redisstore.ErrRefused):
		attempt.Release()
		return err
	case err != nil:
		attempt.Abandon()
		return err
	}
	if err := linger(r.ctx(), h.delay); err != nil {
		attempt.Abandon() // the money may have moved, and what the provider answered is unknown
		return err
	}
	return r.answer(http.StatusCreated, payment)
}

// linger stands for the time that a real payment provider takes after it has taken the money.
func linger(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(delay):
		return nil
	}
}

var currencyForm = lazyregexp.New(`^[A-Z]{3}$`)

const maxAmount = 1_000_000_000

func paymentOf(r *request) (asked api.PaymentRequest) {
	r.body(&asked)
	switch {
	case asked.Amount < 1 || asked.Amount > maxAmount:
		r.invalid("amount", "1 to 1000000000, in the currency's smallest unit")
	case !currencyForm().MatchString(asked.Currency):
		r.invalid("currency", "three capital letters, such as EUR")
	case !names.Valid(asked.To):
		r.invalid("to", nameRule)
	}
	return asked
}

func (h *payments) list(r *request) error {
	return r.result(h.ledger.List(r.ctx()))
}
