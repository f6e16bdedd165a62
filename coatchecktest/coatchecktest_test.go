package coatchecktest_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/coatchecktest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// post sends a payment with the key k, and returns the status and the body.
func post(t *testing.T, handler http.Handler) string {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader("12.99 EUR"))
	request.Header.Set("Idempotency-Key", "k")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		return http.StatusText(answer.Code)
	}
	return answer.Body.String()
}

func TestAnAnswerIsKeptForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := idempotency.New(coatchecktest.Store(t), idempotency.Config{})
		defer tokens.Close(t.Context())
		runs := 0
		pay := tokens.Middleware(idempotency.Route{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			fmt.Fprint(w, "run ", runs)
		}))

		first := post(t, pay)
		coatchecktest.Pass(23 * time.Hour)
		repeat := post(t, pay)
		coatchecktest.Pass(2 * time.Hour) // Route.Retention is a day by default
		later := post(t, pay)
		if first != "run 1" || repeat != "run 1" || later != "run 2" {
			t.Errorf("got %q, %q and %q", first, repeat, later)
		}
	})
}

func TestAHandlerOfAnHourKeepsItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := idempotency.New(coatchecktest.Store(t), idempotency.Config{})
		defer tokens.Close(t.Context())
		pay := tokens.Middleware(idempotency.Route{Lease: 10 * time.Second})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Hour)
			fmt.Fprint(w, "paid")
		}))

		answer := make(chan string)
		go func() { answer <- post(t, pay) }()
		coatchecktest.Pass(59 * time.Minute)
		if got := post(t, pay); got != "Conflict" { // heartbeats renew the claim of ten seconds
			t.Errorf("a repeat meanwhile: got %q", got)
		}
		if got := <-answer; got != "paid" {
			t.Errorf("got %q", got)
		}
	})
}

func TestALostLockStopsItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := coatchecktest.Start(t)
		locks := lock.New(redis.Store(), lock.Config{})
		defer locks.Close()
		held, err := locks.Acquire(t.Context(), "report", lock.Request{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		coatchecktest.Pass(time.Hour)
		if held.Context().Err() != nil {
			t.Error("the lock ended while Redis was there")
		}

		redis.Cut() // nothing renews it
		coatchecktest.Pass(10 * time.Second)
		if held.Context().Err() == nil {
			t.Error("the holder was not told")
		}
		redis.Mend()
		if _, err := locks.Acquire(t.Context(), "report", lock.Request{}); err != nil {
			t.Errorf("another holder: %v", err)
		}
	})
}

func TestAWorkerIDSurvivesAnHourAndEndsWithItsRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coatchecktest.Present()
		redis := coatchecktest.Start(t)
		pools := workerlease.New(redis.Store(), workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		ids, err := pools.Stamp(t.Context(), "orders", workerlease.Request{}, workerlease.HoldOptions{}, snowflake.Config{})
		if err != nil {
			t.Fatal(err)
		}
		coatchecktest.Pass(time.Hour)
		if _, err := ids.Next(t.Context()); err != nil { // renewed 360 times
			t.Errorf("after an hour: %v", err)
		}
		redis.Cut()
		coatchecktest.Pass(workerlease.DefaultTTL)
		if _, err := ids.Next(t.Context()); err == nil {
			t.Error("an id was stamped after the window")
		}
		redis.Mend()
		if err := ids.Close(t.Context()); err != nil {
			t.Logf("closing: %v", err) // the lease has ended
		}
	})
}

// Outside of a bubble the clock is the machine's. A call while the Redis is cut off is refused.
func TestStoreWorksOutsideOfABubble(t *testing.T) {
	redis := coatchecktest.Start(t)
	if err := redis.Store().Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	redis.Cut()
	if err := redis.Store().Ping(t.Context()); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("while it is cut off: got %v, want %v", err, redisstore.ErrUnavailable)
	}
	redis.Mend()
	for redis.Store().Ping(t.Context()) != nil { // go-redis pauses dials after failures
		time.Sleep(10 * time.Millisecond)
	}
}
