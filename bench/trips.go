package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

// inFlight is how many requests are under way where several are.
const inFlight = 64

// tripsCommand counts how often Redis reads from its connections for each kind of request. For one
// request at a time that is the number of round trips, and with many in flight it shows how many
// share one.
func tripsCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("trips", flag.ContinueOnError)
	requests := flags.Int("requests", 1000, "requests of each kind")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *requests < inFlight {
		return usageError{fmt.Errorf("%d requests: at least %d", *requests, inFlight)}
	}
	redis, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.end()
	machine, err := machine(ctx, redis)
	if err != nil {
		return err
	}
	t := &table{
		Title: "trips", When: time.Now().UTC(), Machine: machine, Rounds: 1,
		Columns: []string{"side", "request", "status", "one at a time", strconv.Itoa(inFlight) + " in flight"},
		Notes:   []string{"Reads of Redis from its connections, for each request."},
	}
	for _, shape := range shapes {
		if shape.name == unguarded {
			continue
		}
		if err := countTrips(ctx, t, redis, shape, *requests); err != nil {
			return fmt.Errorf("%s: %w", shape.name, err)
		}
	}
	return out.write(stdout, t)
}

// tripCounter asks one guarded service and counts what arrives at Redis.
type tripCounter struct {
	redis   *redisServer
	service http.Handler
	keys    atomic.Int64
	begun   chan struct{} // told when a slow payment has begun
	release chan struct{} // closed when it may end
}

// What a payment's recipient makes the handler do.
const (
	toSlow  = "slow"
	toPanic = "panic"
)

func (c *tripCounter) pay(e echo.Context) error {
	var order payment
	if err := e.Bind(&order); err != nil {
		return err
	}
	switch order.To {
	case toSlow:
		c.begun <- struct{}{}
		<-c.release
	case toPanic:
		panic(toPanic)
	}
	return e.JSON(http.StatusCreated, receipt{Amount: order.Amount, To: order.To})
}

func countTrips(ctx context.Context, t *table, redis *redisServer, shape shape, requests int) (err error) {
	guard, err := shape.guard(ctx, redis.url())
	if err != nil {
		return err
	}
	defer func() {
		if closing := guard.close(); err == nil {
			err = closing
		}
	}()
	if err := redis.FlushAll(ctx).Err(); err != nil { // the scripts' shapes share their keys
		return err
	}
	c := &tripCounter{redis: redis, begun: make(chan struct{}), release: make(chan struct{})}
	c.service = service(c.pay, guard)
	fresh := func() string { return "key-" + strconv.FormatInt(c.keys.Add(1), 10) }
	same := func(key string) func() string { return func() string { return key } }

	if err := c.warm(ctx, fresh); err != nil {
		return err
	}
	var kinds []tripKind
	if shape.name != onePing {
		kinds = append(kinds, tripKind{name: "first", key: fresh, status: http.StatusCreated})
	}
	if shape.name != twoPings {
		kinds = append(kinds, tripKind{name: "replay", key: same("warm"), status: http.StatusCreated, replayed: true})
	}
	if shape.name == coatcheck {
		go c.ask(ctx, "slow", toSlow)
		<-c.begun
		defer close(c.release)
		c.panics(ctx, "doubtful")
		kinds = append(kinds,
			tripKind{name: "other payload", to: "other", key: same("warm"), status: http.StatusUnprocessableEntity},
			tripKind{name: "in progress", to: toSlow, key: same("slow"), status: http.StatusConflict},
			tripKind{name: "in doubt", to: toPanic, key: same("doubtful"), status: http.StatusConflict},
		)
	}
	for _, kind := range kinds {
		one, err := c.count(ctx, kind, requests, 1)
		if err != nil {
			return err
		}
		many, err := c.count(ctx, kind, requests, inFlight)
		if err != nil {
			return err
		}
		t.add(shape.name, kind.name, kind.status, one, many)
		t.keep(kind.name+" request, one at a time", shape.name, "reads", []float64{one})
		t.keep(fmt.Sprintf("%s request, %d in flight", kind.name, inFlight), shape.name, "reads", []float64{many})
	}
	return nil
}

// tripKind is a kind of request and the answer that it gets.
type tripKind struct {
	name     string
	to       string // the payment's recipient
	key      func() string
	status   int
	replayed bool
}

// warm makes the connections and has Redis learn the scripts.
func (c *tripCounter) warm(ctx context.Context, fresh func() string) error {
	first := tripKind{name: "first", key: func() string { return "warm" }, status: http.StatusCreated}
	if _, err := c.count(ctx, first, 1, 1); err != nil {
		return err
	}
	first.key = fresh
	_, err := c.count(ctx, first, 2000, inFlight)
	return err
}

// ask sends one request and returns its answer.
func (c *tripCounter) ask(ctx context.Context, key, to string) *httptest.ResponseRecorder {
	body := `{"amount":1299,"currency":"EUR","to":"` + to + `"}`
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/pay", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(keyHeader, key)
	answer := httptest.NewRecorder()
	c.service.ServeHTTP(answer, request)
	return answer
}

// panics leaves a token in doubt.
func (c *tripCounter) panics(ctx context.Context, key string) {
	defer func() { _ = recover() }()
	c.ask(ctx, key, toPanic)
}

// count sends requests, so many at a time, and returns how often Redis has read for each.
func (c *tripCounter) count(ctx context.Context, kind tripKind, requests, atOnce int) (float64, error) {
	before, err := c.redis.number(ctx, "stats", "total_reads_processed")
	if err != nil {
		return 0, err
	}
	var wrong atomic.Int64
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for range requests / atOnce {
				answer := c.ask(ctx, kind.key(), kind.to)
				if replayed := answer.Header().Get("Idempotent-Replayed") != ""; answer.Code != kind.status || replayed != kind.replayed {
					wrong.Store(int64(answer.Code))
				}
			}
		})
	}
	running.Wait()
	after, err := c.redis.number(ctx, "stats", "total_reads_processed")
	if err != nil {
		return 0, err
	}
	if status := wrong.Load(); status != 0 {
		return 0, fmt.Errorf("%s: answered %d instead of %d, replayed: %v", kind.name, status, kind.status, kind.replayed)
	}
	return (after - before - 1) / float64(requests/atOnce*atOnce), nil // INFO itself was one
}
