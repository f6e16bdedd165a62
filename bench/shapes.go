package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/echov4"
	"github.com/coatcheck/coatcheck/redisstore"
)

// shape is one way to guard the payment handler.
type shape struct {
	name  string
	guard func(ctx context.Context, redisURL string) (guard, error)
}

// guard is a shape that is connected to its Redis.
type guard struct {
	middleware echo.MiddlewareFunc
	issue      func(ctx context.Context) (token string, err error) // nil = it has no tokens
	close      func() error
}

// The shapes by which a server of this program can guard its handler. README.md says what each is.
const (
	unguarded   = "unguarded"
	twoPings    = "two-pings"
	onePing     = "one-ping"
	coatcheck   = "coatcheck"
	byToken     = "coatcheck, token" // issued before; the others have keys of their own
	rueidisAuto = "rueidis-auto"
)

var shapes = []shape{
	{unguarded, guardWithNothing},
	{twoPings, guardWithPings},
	{onePing, guardWithOnePing},
	{coatcheck, guardWithCoatcheck},
	{byToken, guardWithCoatcheck},
	{rueidisAuto, guardWithScripts},
}

func shapeOf(name string) (shape, error) {
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.name == name })
	if i < 0 {
		return shape{}, usageError{fmt.Errorf("no shape %q", name)}
	}
	return shapes[i], nil
}

// payment is what the measured handler takes, and receipt what it answers.
type (
	payment struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		To       string `json:"to"`
	}
	receipt struct {
		ID       int64  `json:"id"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		To       string `json:"to"`
	}
)

// application is the service that all shapes guard: it reads a JSON body and answers 201 with a
// small JSON body. It counts its runs.
type application struct {
	runs atomic.Int64
}

func (a *application) pay(c echo.Context) error {
	id := a.runs.Add(1)
	var order payment
	if err := c.Bind(&order); err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, receipt{ID: id, Amount: order.Amount, Currency: order.Currency, To: order.To})
}

// service is a handler behind a guard, as the network sees it.
func service(pay echo.HandlerFunc, guard guard) http.Handler {
	e := echo.New()
	e.POST("/pay", pay, guard.middleware)
	return e
}

func guardWithNothing(context.Context, string) (guard, error) {
	return guard{
		middleware: func(next echo.HandlerFunc) echo.HandlerFunc { return next },
		close:      func() error { return nil },
	}, nil
}

// guardWithCoatcheck wraps the middleware for Echo as package server does.
func guardWithCoatcheck(ctx context.Context, redisURL string) (guard, error) {
	store, err := redisstore.Open(ctx, redisURL)
	if err != nil {
		return guard{}, err
	}
	tokens := idempotency.New(store, idempotency.Config{})
	wrapped := echov4.Wrap(tokens.Middleware(idempotency.Route{Name: "POST /pay"}))
	issue := func(ctx context.Context) (string, error) {
		token, err := tokens.Issue(ctx, "", "", 0)
		return token.Value, err
	}
	return guard{middleware: wrapped, issue: issue, close: func() error { return errors.Join(tokens.Close(ctx), store.Close()) }}, nil
}
