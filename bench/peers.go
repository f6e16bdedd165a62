package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// What the hand-written guards agree on.
const (
	peerPool      = 64 // connections to Redis, as many as coatcheck may have
	peerLease     = 30 * time.Second
	peerRetention = 24 * time.Hour
	keyHeader     = "Idempotency-Key"
)

// errBusy says that another request with the same key is under way.
var errBusy = echo.NewHTTPError(http.StatusConflict, "in progress")

// guardBy is the middleware around two scripts. It does the least that such a middleware can do,
// and less than coatcheck: no heartbeat, no headers kept, no context that outlives the client, any
// key taken as it is.
func guardBy(claims byRueidis) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request := c.Request()
			key := request.Header.Get(keyHeader)
			if key == "" {
				return echo.NewHTTPError(http.StatusBadRequest, "no key")
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				return err
			}
			request.Body = io.NopCloser(bytes.NewReader(body))
			sum := sha256.Sum256(body)
			owner := secretOf()
			answer, granted, err := claims.claim(request.Context(), key, owner, base64.RawURLEncoding.EncodeToString(sum[:]))
			if err != nil {
				return err
			}
			if !granted {
				c.Response().Header().Set("Idempotent-Replayed", "true")
				return c.JSONBlob(http.StatusCreated, answer)
			}
			return runAndComplete(c, next, func(answer []byte) error { return claims.complete(request.Context(), key, owner, answer) })
		}
	}
}

// held keeps an answer's body back.
type held struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

func (h *held) WriteHeader(status int)      { h.status = status }
func (h *held) Write(b []byte) (int, error) { return h.body.Write(b) }

// runAndComplete runs the handler, has its answer stored and sends it.
func runAndComplete(c echo.Context, next echo.HandlerFunc, complete func(answer []byte) error) error {
	outer := c.Response().Writer
	answer := &held{ResponseWriter: outer}
	c.Response().Writer = answer
	err := next(c)
	c.Response().Writer = outer
	if err != nil {
		return err
	}
	if err := complete(answer.body.Bytes()); err != nil {
		return err
	}
	outer.WriteHeader(answer.status)
	_, err = outer.Write(answer.body.Bytes())
	return err
}

func peerClient(redisURL string) (*redis.Client, error) {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	options.PoolSize = peerPool
	return redis.NewClient(options), nil
}

// guardWithPings guards nothing. It asks Redis for nothing once before and once after the handler:
// what two round trips cost that depend on each other, however little is in them.
func guardWithPings(_ context.Context, redisURL string) (guard, error) {
	client, err := peerClient(redisURL)
	if err != nil {
		return guard{}, err
	}
	middleware := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx := c.Request().Context()
			if err := client.Ping(ctx).Err(); err != nil {
				return err
			}
			return errors.Join(next(c), client.Ping(ctx).Err())
		}
	}
	return guard{middleware: middleware, close: client.Close}, nil
}

// guardWithOnePing keeps answers in this process, and asks Redis for nothing once before it repeats
// one: what a replay costs that asks Redis once, however little is in it. First requests ask
// nothing.
func guardWithOnePing(_ context.Context, redisURL string) (guard, error) {
	options, err := rueidis.ParseURL(redisURL)
	if err != nil {
		return guard{}, err
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		return guard{}, err
	}
	var answers sync.Map
	middleware := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request := c.Request()
			key := request.Header.Get(keyHeader)
			kept, known := answers.Load(key)
			if !known {
				return runAndComplete(c, next, func(answer []byte) error { answers.Store(key, answer); return nil })
			}
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				return err
			}
			if err := client.Do(request.Context(), client.B().Ping().Build()).Error(); err != nil {
				return err
			}
			answer, _ := kept.([]byte)
			c.Response().Header().Set("Idempotent-Replayed", "true")
			return c.JSONBlob(http.StatusCreated, answer)
		}
	}
	return guard{middleware: middleware, close: func() error { client.Close(); return nil }}, nil
}
