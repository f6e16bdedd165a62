package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// atOnce sends all calls at the same time and returns their answers in order.
func (f *fixture) atOnce(t *testing.T, calls []call) []answer {
	t.Helper()
	answers := make([]answer, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		c = f.filled(c)
		wg.Go(func() {
			a, err := f.s.send(context.WithoutCancel(t.Context()), c)
			if err != nil {
				t.Errorf("%v: %v", c, err)
			}
			answers[i] = a
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return answers
}

// wantHung checks an answer from a store that hangs: what it may still do has an unknown outcome, what never left this process was not done.
func wantHung(t *testing.T, a answer) wire.Code {
	t.Helper()
	code := wire.StoreUnavailable
	if decode[wire.Problem](t, a, 503).Code == wire.OutcomeUnknown {
		code = wire.OutcomeUnknown
	}
	checkProblem(t, a, code)
	expect.Equal(t, a.asked+", answered "+string(code)+": Retry-After is told", a.header.Get("Retry-After") != "", code == wire.StoreUnavailable)
	return code
}

func TestStoreThatHangsIsToldOnEveryEndpoint(t *testing.T) {
	redis, f := onRedis(t)
	redis.Pause()
	expect.Equal(t, "a write on a connection that was there", wantHung(t, f.send(t, writing[0])), wire.OutcomeUnknown)
	for _, a := range f.atOnce(t, reading) {
		checkProblem(t, a, wire.StoreUnavailable)
	}
	for _, a := range f.atOnce(t, writing) {
		wantHung(t, a)
	}
	f.s.wantNotReady(t)
	redis.Resume()
	f.s.wantReady(t)
	f.send(t, call{method: "POST", path: "/token/{done}/complete", body: `{"status":500}`, header: []string{"Lease-Token: {done-lease}"}}).wantStatus(t, 204)
}

func TestIncrementsOfAHungStoreGiveNoValueTwiceAndWithAKeyAddOnce(t *testing.T) {
	redis, f := onRedis(t)
	var keyed, bare []call
	for i := range 8 {
		bare = append(bare, call{method: "POST", path: "/incr/bare"})
		keyed = append(keyed, call{method: "POST", path: "/incr/keyed?by=3", header: []string{fmt.Sprintf("Idempotency-Key: k%d", i)}})
	}
	handedOut := map[int64]bool{}
	take := func(answers []answer) (values []int64) {
		t.Helper()
		for _, a := range answers {
			got := decode[wire.Incremented](t, a, 200)
			if got.Key == "bare" && handedOut[got.Value] {
				t.Errorf("%d was handed out twice", got.Value)
			}
			handedOut[got.Value] = true
			values = append(values, got.Value)
		}
		return values
	}
	before := slices.Max(take(f.atOnce(t, bare)))
	redis.Pause()
	uncertain := int64(0)
	for _, a := range f.atOnce(t, append(bare, keyed...))[:len(bare)] {
		if wantHung(t, a) == wire.OutcomeUnknown {
			uncertain++
		}
	}
	redis.Resume()
	f.s.wantReady(t)
	after := take(f.atOnce(t, bare))
	if most := before + uncertain + int64(len(bare)); slices.Min(after) <= before || slices.Max(after) > most {
		t.Errorf("increments after the hang: got %v, want values above %d and up to %d, since %d increments are uncertain", after, before, most, uncertain)
	}

	first := take(f.atOnce(t, keyed))
	again := take(f.atOnce(t, keyed))
	expect.Equal(t, "values of the same keys, asked again", again, first)
	slices.Sort(first)
	for i, value := range first {
		if value != int64(3*(i+1)) {
			t.Fatalf("%v: each key must have added its 3 once, whether or not the hung store ran its first request", first)
		}
	}
}

func TestPaymentWhoseClaimHangsRunsNothingAndThenOnce(t *testing.T) {
	redis, f := onRedis(t)
	token := f.s.issue(t, `{"scope":"payments"}`)
	pay := call{method: "POST", path: "/payments", body: `{"amount":7,"currency":"EUR","to":"a"}`, header: []string{"Idempotency-Token: " + token}}
	redis.Pause()
	expect.Equal(t, "a payment whose claim hangs", wantHung(t, f.send(t, pay)), wire.OutcomeUnknown)
	redis.Resume()
	var last answer
	eventually(t, "the same payment is made", func() bool {
		last = f.send(t, pay)
		if total := f.s.ledger(t).Total; last.status != 201 && total != 1 {
			t.Fatalf("%d payments in the ledger before one was answered: the handler ran behind a claim that was not certain", total)
		}
		return last.status == 201
	})
	again := f.send(t, pay)
	again.wantBody(t, string(last.body))
	again.wantHeader(t, "Idempotent-Replayed", "true")
	expect.Equal(t, "payments in the ledger: the fixture's and this", f.s.ledger(t).Total, 2)
}

// Clients count on while the server is killed and comes back, several times.
func TestCounterContinuesThroughCrashesWithNoValueTwice(t *testing.T) {
	redis, f := onRedis(t, keeping...)
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var wg sync.WaitGroup
	values, refused := map[int64]int{}, 0
	for range 4 {
		wg.Go(func() {
			last := int64(0)
			for ctx.Err() == nil {
				a, err := f.s.send(context.WithoutCancel(ctx), call{method: "POST", path: "/incr/crash"})
				if err != nil {
					t.Errorf("POST /incr/crash: %v", err)
					return
				}
				mu.Lock()
				if a.status == 200 {
					got := decode[wire.Incremented](t, a, 200).Value
					values[got]++
					if got <= last {
						t.Errorf("POST /incr/crash: got %d after %d, want a client's values to rise", got, last)
					}
					last = got
				} else {
					wantHung(t, a)
					refused++
				}
				mu.Unlock()
			}
		})
	}
	count := func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return len(values), refused
	}
	for range 3 {
		served, _ := count()
		eventually(t, "it counts", func() bool { now, _ := count(); return now > served+50 })
		_, failed := count()
		redis.Kill()
		eventually(t, "the clients notice", func() bool { _, now := count(); return now > failed })
		redis.Restart()
	}
	served, _ := count()
	eventually(t, "it counts again", func() bool { now, _ := count(); return now > served })
	stop()
	wg.Wait()
	for value, times := range values {
		if times != 1 {
			t.Errorf("%d was handed out %d times", value, times)
		}
	}
}
