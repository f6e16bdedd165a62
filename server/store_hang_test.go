package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
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

// wantHung checks an answer from a store that hangs: what it may still do has an unknown outcome,
// what never left this process was not done.
func wantHung(t *testing.T, a answer) api.Code {
	t.Helper()
	code := api.StoreUnavailable
	if decode[api.Problem](t, a, 503).Code == api.OutcomeUnknown {
		code = api.OutcomeUnknown
	}
	checkProblem(t, a, code)
	expect.Equal(t, a.asked+", answered "+string(code)+": Retry-After is told", a.header.Get("Retry-After") != "", code == api.StoreUnavailable)
	return code
}

// onRedisThatHangs is a fixture on a private redis-server, asked through a service that gives the
// store a second for a call. What the fixture has was made through another one, which is more
// patient.
func onRedisThatHangs(t *testing.T) (*redistest.Server, *fixture) {
	t.Helper()
	redis, f := onRedis(t)
	impatient := redisstore.Config{URL: redis.URL(), Timeout: time.Second, AckTimeout: 200 * time.Millisecond}
	f.s = serve(t, server.Config{Store: storetest.Open(t, impatient), Dev: true})
	f.s.wantReady(t)
	return redis, f
}

// served sends all calls at once, and those that found the store away again until they are
// answered: on a busy machine, a call may take longer than the store is given. It returns how many
// outcomes were unknown.
func (f *fixture) served(t *testing.T, calls []call) (answers []answer, uncertain int64) {
	t.Helper()
	answers = f.atOnce(t, calls)
	for i, c := range calls {
		expect.Eventually(t, c.String()+" is answered by a store that hangs no more", func() bool {
			if answers[i].status != 503 {
				return true
			}
			if wantHung(t, answers[i]) == api.OutcomeUnknown {
				uncertain++
			}
			answers[i] = f.send(t, c)
			return false
		})
	}
	return answers, uncertain
}

func TestStoreThatHangsIsToldOnEveryEndpoint(t *testing.T) {
	t.Parallel()
	redis, f := onRedisThatHangs(t)
	redis.Pause()
	expect.Equal(t, "a write on a connection that was there", wantHung(t, f.send(t, writing[0])), api.OutcomeUnknown)
	for _, a := range f.atOnce(t, reading) {
		checkProblem(t, a, api.StoreUnavailable)
	}
	for _, a := range f.atOnce(t, writing) {
		wantHung(t, a)
	}
	f.s.wantNotReady(t)
	redis.Resume()
	f.s.wantReady(t)
	answers, _ := f.served(t, []call{{method: "POST", path: "/token/{done}/complete", body: `{"status":500}`, header: []string{"Lease-Token: {done-lease}"}}})
	answers[0].wantStatus(t, 204)
}

func TestIncrementsOfAHungStoreGiveNoValueTwiceAndWithAKeyAddOnce(t *testing.T) {
	t.Parallel()
	redis, f := onRedisThatHangs(t)
	var keyed, bare []call
	for i := range 8 {
		bare = append(bare, call{method: "POST", path: "/incr/bare"})
		keyed = append(keyed, call{method: "POST", path: "/incr/keyed?by=3", header: []string{fmt.Sprintf("Idempotency-Key: k%d", i)}})
	}
	handedOut := map[int64]bool{}
	uncertain := int64(0)
	take := func(calls []call) (values []int64) {
		t.Helper()
		answers, unknown := f.served(t, calls)
		uncertain += unknown
		for _, a := range answers {
			got := decode[api.Incremented](t, a, 200)
			if got.Key == "bare" && handedOut[got.Value] {
				t.Errorf("%v; this value was handed out before", a)
			}
			handedOut[got.Value] = true
			values = append(values, got.Value)
		}
		return values
	}
	before := slices.Max(take(bare))
	redis.Pause()
	for _, a := range f.atOnce(t, append(bare, keyed...))[:len(bare)] {
		if wantHung(t, a) == api.OutcomeUnknown {
			uncertain++
		}
	}
	redis.Resume()
	f.s.wantReady(t)
	after := take(bare)
	if most := before + uncertain + int64(len(bare)); slices.Min(after) <= before || slices.Max(after) > most {
		t.Errorf("POST /incr/bare after the store hung: got %v, want values above %d, up to %d since %d outcomes are unknown", after, before, most, uncertain)
	}

	first, again := take(keyed), take(keyed)
	expect.Equal(t, "POST /incr/keyed?by=3 again with the same keys", again, first)
	slices.Sort(first)
	for i, value := range first {
		if value != int64(3*(i+1)) {
			t.Fatalf("POST /incr/keyed?by=3 with 8 keys: got %v, want each key to have added its 3 once, whether or not the hung store ran its first request", first)
		}
	}
}

func TestPaymentWhoseClaimHangsRunsNothingAndThenOnce(t *testing.T) {
	t.Parallel()
	redis, f := onRedisThatHangs(t)
	var token string
	expect.Eventually(t, "a token is issued", func() bool {
		a := f.send(t, call{method: "POST", path: "/token", body: `{"scope":"payments"}`})
		if a.status == 201 {
			token = decode[api.TokenIssued](t, a, 201).Token
		}
		return token != ""
	})
	pay := call{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Token: " + token}}
	redis.Pause()
	expect.Equal(t, "a payment whose claim hangs", wantHung(t, f.send(t, pay)), api.OutcomeUnknown)
	redis.Resume()
	var last answer
	expect.Eventually(t, "the same payment is made", func() bool {
		last = f.send(t, pay)
		if ledger := f.send(t, call{method: "GET", path: "/payments"}); last.status != 201 && ledger.status == 200 {
			if total := decode[api.Ledger](t, ledger, 200).Total; total != 1 {
				t.Fatalf("%v; %d payments are in the ledger, want the fixture's alone: the handler ran after a claim that was not certain", last, total)
			}
		}
		return last.status == 201
	})
	again, _ := f.served(t, []call{pay, {method: "GET", path: "/payments"}})
	wantReplay(t, again[0], last)
	expect.Equal(t, "payments in the ledger, of the fixture and this one", decode[api.Ledger](t, again[1], 200).Total, 2)
}
