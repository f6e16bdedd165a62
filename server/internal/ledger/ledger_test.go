package ledger_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/server/internal/ledger"
)

func TestMain(m *testing.M) {
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// book is a ledger, and a way around it.
type book struct {
	*ledger.Ledger
	store *redisstore.Store
}

func TestLedger(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		b := book{ledger.New(store), store}
		for _, test := range []struct {
			name string
			run  func(*testing.T)
		}{
			{"is empty at first", b.empty},
			{"lists charges as they were made, equal ones as well", b.charges},
			{"loses none of many at once", b.manyAtOnce},
			{"shows the newest thousand", b.newest},
			{"drops its oldest thousand when it is full", b.full},
			{"charges nothing for a context that has ended", b.ended},
			{"tells an entry that is not its own", b.foreign},
		} {
			t.Run(test.name, func(t *testing.T) {
				b.do(t, "redis.call('DEL', KEYS[1])")
				test.run(t)
			})
		}
	})
}

// do runs Lua on the ledger's key.
func (b book) do(t *testing.T, lua string) {
	t.Helper()
	// not known: the store sends the source
	script := scripts.New("test", lua+" return {'ok'}")
	if _, err := onstore.Run(t.Context(), b.store, script, []string{onstore.Key(b.store, "demo", "payments")}); err != nil {
		t.Fatalf("running %q: %v", lua, err)
	}
}

func (b book) list(t *testing.T) api.Ledger {
	t.Helper()
	list, err := b.List(t.Context())
	expect.NoError(t, "List", err)
	return list
}

func (b book) charge(t *testing.T, payment api.Payment) api.Payment {
	t.Helper()
	charged, err := b.Charge(t.Context(), payment)
	if err != nil {
		t.Fatalf("Charge of %+v: %v", payment, err)
	}
	return charged
}

func (b book) empty(t *testing.T) {
	expect.Equal(t, "List of an empty ledger", b.list(t), api.Ledger{Payments: []api.Payment{}})
}

func (b book) charges(t *testing.T) {
	id := regexp.MustCompile(`^pay_[A-Za-z0-9_-]{22}$`)
	var made []api.Payment
	for _, amount := range []int64{1, 1, 1_000_000_000, 9_007_199_254_740_993} {
		payment := api.Payment{ID: "mine", Amount: amount, Currency: "EUR", To: "acct_1", Fence: 1<<53 - 1}
		charged := b.charge(t, payment)
		if !id.MatchString(charged.ID) || charged.ChargedAt.IsZero() {
			t.Errorf("Charge: got %+v, want an id that matches %s, and a time", charged, id)
		}
		payment.ID, payment.ChargedAt = charged.ID, charged.ChargedAt
		expect.Equal(t, "Charge", charged, payment)
		made = append(made, charged)
	}
	list := b.list(t)
	expect.Equal(t, "List", list, api.Ledger{Total: len(made), Payments: made})
	ids := map[string]bool{}
	for _, payment := range list.Payments {
		ids[payment.ID] = true
	}
	expect.Equal(t, "different ids", len(ids), len(made))
}

func (b book) manyAtOnce(t *testing.T) {
	const callers, each = 16, 10
	var wg sync.WaitGroup
	for caller := range int64(callers) {
		wg.Go(func() {
			for range each {
				if _, err := b.Charge(t.Context(), api.Payment{Amount: caller}); err != nil {
					t.Errorf("one of many Charge: %v", err)
				}
			}
		})
	}
	wg.Wait()
	list := b.list(t)
	ids := map[string]bool{}
	for i, payment := range list.Payments {
		ids[payment.ID] = true
		if i > 0 && payment.ChargedAt.Before(list.Payments[i-1].ChargedAt.Time) {
			t.Errorf("List: payment %d is of %v and the one before it of %v, want the oldest first", i, payment.ChargedAt, list.Payments[i-1].ChargedAt.Time)
		}
	}
	expect.Equal(t, "List: total", list.Total, callers*each)
	expect.Equal(t, "different ids", len(ids), callers*each)
}

// fill puts charges into the book that were made long ago, from amount 1 on.
func (b book) fill(t *testing.T, n int) {
	const batch = 500 // which no store needs long for
	for first := 1; first <= n; first += batch {
		b.do(t, fmt.Sprintf(`for i = %d, %d do redis.call('ZADD', KEYS[1], i, '{"amount":' .. i .. '}') end`, first, first+batch-1))
	}
}

func (b book) newest(t *testing.T) {
	b.fill(t, 1500)
	last := b.charge(t, api.Payment{Amount: 7})
	list := b.list(t)
	expect.Equal(t, "List: total", list.Total, 1501)
	expect.MustEqual(t, "List: payments", len(list.Payments), 1000)
	expect.Equal(t, "List: amount of the first payment", list.Payments[0].Amount, 502)
	expect.Equal(t, "List: the last payment", list.Payments[999], last)
}

func (b book) full(t *testing.T) {
	b.fill(t, 10_000)
	last := b.charge(t, api.Payment{Amount: 7})
	list := b.list(t)
	expect.Equal(t, "List: total", list.Total, 9001)
	expect.MustEqual(t, "List: payments", len(list.Payments), 1000)
	expect.Equal(t, "List: the last payment", list.Payments[999], last)
	expect.Equal(t, "List: amount of the payment before it", list.Payments[998].Amount, 10_000)
}

func (b book) ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, charging := b.Charge(ctx, api.Payment{Amount: 1})
	_, listing := b.List(ctx)
	for name, err := range map[string]error{"Charge": charging, "List": listing} {
		expect.Error(t, name+" with an ended context", err, redisstore.ErrRefused)
		expect.Error(t, name+" with an ended context", err, context.Canceled)
	}
	b.empty(t)
}

func (b book) foreign(t *testing.T) {
	b.do(t, "redis.call('ZADD', KEYS[1], 1, 'no JSON')")
	_, err := b.List(t.Context())
	expect.Error(t, "List with an entry that is no JSON", err, redisstore.ErrUnavailable)
	b.do(t, "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'x')")
	_, err = b.List(t.Context())
	expect.Error(t, "List of another kind of value", err, redisstore.ErrWrongType)
	_, err = b.Charge(t.Context(), api.Payment{Amount: 1})
	expect.Error(t, "Charge with another kind of value", err, redisstore.ErrWrongType)
}
