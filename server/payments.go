package server

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (s *Server) paymentRoute() idempotency.Route {
	return idempotency.Route{Name: "POST /payments", Scope: "payments", Lease: s.config.PaymentLease, MaxBody: s.config.MaxBody}
}

// pay is the demo's handler, as a user would write it: check, have the effect, answer. That it runs
// once is the guard's business.
func (s *Server) pay(c echo.Context) error {
	attempt, _ := idempotency.FromContext(c.Request().Context())
	request, err := paymentOf(c)
	if err != nil {
		attempt.NotBegun()
		return err
	}
	payment, err := s.ledger.Charge(c.Request().Context(), wire.Payment{
		Amount: request.Amount, Currency: request.Currency, To: request.To, Fence: attempt.Fence,
	})
	switch {
	case errors.Is(err, redisstore.ErrRefused):
		attempt.NotBegun()
		return err
	case err != nil:
		attempt.InDoubt()
		return err
	}
	if err := linger(c.Request().Context(), s.config.PaymentDelay); err != nil {
		attempt.InDoubt() // the money may have moved, and what the provider answered is unknown
		return err
	}
	noStore(c)
	return c.JSON(http.StatusCreated, payment)
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

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

const maxAmount = 1_000_000_000

func paymentOf(c echo.Context) (wire.PaymentRequest, error) {
	var request wire.PaymentRequest
	if err := body(c, &request); err != nil {
		return request, err
	}
	switch {
	case request.Amount < 1 || request.Amount > maxAmount:
		return request, invalid("amount", "1 to 1000000000, in the currency's smallest unit")
	case !currencyForm.MatchString(request.Currency):
		return request, invalid("currency", "three capital letters, such as EUR")
	case !names.Valid(request.To):
		return request, invalid("to", nameRule)
	}
	return request, nil
}

func (s *Server) listPayments(c echo.Context) error {
	list, err := s.ledger.List(c.Request().Context())
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, list)
}
