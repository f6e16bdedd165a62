package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// request is one of many for a transfer. It crashes at a step, if it gets there.
type request struct {
	operation int
	crash     step // "" = not at all
}

// TestTransfersOfAnyOrderWithDuplicatesAndCrashesKeepTheBooks sends random transfers, each many
// times, several at once, some of which crash on the way, to two services on one Redis that now and
// then forgets everything. At the end each transfer was done at most once, whichever client was
// told that it was done was told the same, and the accounts hold what the transfers that were done
// leave in them.
func TestTransfersOfAnyOrderWithDuplicatesAndCrashesKeepTheBooks(t *testing.T) {
	redis := redistest.Start(t)
	file := newFile(t)
	services := []*service{inProcess(t, redis.URL(), file), inProcess(t, redis.URL(), file)}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		run := &rounds{t: rt, services: services, round: round, before: balancesIn(t, services[0].ledger), done: map[int][]string{}}
		run.orders = rapid.SliceOfN(rapid.Custom(drawOrder), 1, 4).Draw(rt, "transfers")
		for range rapid.IntRange(1, 4).Draw(rt, "bursts") {
			if rapid.IntRange(0, 3).Draw(rt, "forgets") == 0 {
				flush(t, redis)
			}
			run.burst(rapid.SliceOfN(rapid.Custom(run.drawRequest), 1, 6).Draw(rt, "requests"))
		}
		run.finish()
		run.checkBooks(balancesIn(t, services[0].ledger))
	})
}

func drawOrder(t *rapid.T) transferOrder {
	accounts := []string{"alice", "bob", "carol"}
	from := rapid.SampledFrom(accounts).Draw(t, "from")
	to := rapid.SampledFrom(slices.DeleteFunc(accounts, func(a string) bool { return a == from })).Draw(t, "to")
	return transferOrder{from, to, rapid.Int64Range(1, 9_000).Draw(t, "amount")}
}

// rounds is one run of the property.
type rounds struct {
	t        *rapid.T
	services []*service
	round    int
	orders   []transferOrder
	before   map[string]int64

	mu   sync.Mutex
	sent int
	done map[int][]string // by operation: every answer that said that it was done
}

func (r *rounds) drawRequest(t *rapid.T) request {
	return request{
		operation: rapid.IntRange(0, len(r.orders)-1).Draw(t, "operation"),
		crash:     rapid.SampledFrom(append([]step{"", "", ""}, steps...)).Draw(t, "crash"),
	}
}

// burst sends requests at once.
func (r *rounds) burst(requests []request) {
	var all sync.WaitGroup
	for _, q := range requests {
		all.Go(func() { r.send(q) })
	}
	all.Wait()
}

// send sends a request to one of the services in turn. A crash ends the handler in the middle, as a
// panic does: an open transaction is rolled back, the client hears nothing.
func (r *rounds) send(q request) (a answer) {
	r.mu.Lock()
	s := *r.services[r.sent%len(r.services)]
	r.sent++
	r.mu.Unlock()
	var armed atomic.Bool
	armed.Store(true)
	book := *s.ledger
	book.at = func(now step) {
		if now == q.crash && armed.CompareAndSwap(true, false) {
			panic(http.ErrAbortHandler)
		}
	}
	s.ledger = &book
	defer func() {
		if crash := recover(); crash != nil && crash != http.ErrAbortHandler { //nolint:errorlint // a panic's value
			panic(crash)
		}
	}()
	order := r.orders[q.operation]
	body := fmt.Sprintf(`{"from":%q,"to":%q,"amount":%d}`, order.From, order.To, order.Amount)
	a = s.ask("POST", "/transfers", body, fmt.Sprintf("Idempotency-Key: %d-%d", r.round, q.operation))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch code := a.code(); {
	case a.status == http.StatusCreated:
		r.done[q.operation] = append(r.done[q.operation], a.body)
	case code != "insufficient-funds" && code != "idempotency-in-progress" && code != "idempotency-superseded":
		r.t.Errorf("POST /transfers %s: got %d %s, want that it was made, or is in progress, superseded or more than there is", body, a.status, a.body)
	}
	return a
}

// finish sends each transfer until it has its outcome.
func (r *rounds) finish() {
	for i := range r.orders {
		if a := r.send(request{operation: i}); a.status != http.StatusCreated && a.code() != "insufficient-funds" {
			r.t.Errorf("transfer %d has no outcome: %d %s", i, a.status, a.body)
		}
	}
}

func (r *rounds) checkBooks(after map[string]int64) {
	want := maps.Clone(r.before)
	for i, order := range r.orders {
		answers := slices.Compact(slices.Sorted(slices.Values(r.done[i])))
		if len(answers) > 1 {
			r.t.Errorf("transfer %d was told to be done in %d ways: %q", i, len(answers), answers)
		}
		if len(answers) > 0 {
			want[order.From] -= order.Amount
			want[order.To] += order.Amount
		}
	}
	for id, balance := range after {
		if balance != want[id] || balance < 0 {
			r.t.Errorf("%s holds %d, want %d", id, balance, want[id])
		}
	}
}
