//go:build check

package chaos

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

var cuts = flag.Int("cuts", 12, "requests to Redis that are lost in one process, of each kind")

// atOnce is how many rounds of cut requests run at a time, and perRound how many requests each
// loses.
const (
	atOnce   = 8
	perRound = 6
)

// guardOf makes the handlers of a service that finds Redis at a URL.
type guardOf func(t *testing.T, url string, policy idempotency.Policy) http.Handler

func guarded(t *testing.T, url string, policy idempotency.Policy) http.Handler {
	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: url, Timeout: storeTimeout / 4})
	expect.NoError(t, "redisstore.OpenConfig", err)
	t.Cleanup(func() { _ = store.Close() })
	tokens := idempotency.New(store, idempotency.Config{})
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel() // what is not recorded yet need not be
		_ = tokens.Close(over)
	})
	return tokens.Middleware(idempotency.Route{Policy: policy, Lease: lease})(http.HandlerFunc(work))
}

func guardedNaively(t *testing.T, url string, _ idempotency.Policy) http.Handler {
	handler, err := newNaive(url, lease, http.HandlerFunc(work))
	expect.NoError(t, "newNaive", err)
	t.Cleanup(func() { _ = handler.(*naive).redis.Close() })
	return handler
}

// wired is a rig of two services in this process, behind links to a Redis of their own.
func wired(t *testing.T, books *book, guard guardOf) (*rig, *chaostest.Losses) {
	server, losses := redistest.Start(t), &chaostest.Losses{}
	r := &rig{t: t, book: books}
	for _, name := range []string{"A", "B"} {
		proxy := losses.Link(t, server)
		mux := http.NewServeMux()
		for _, policy := range []idempotency.Policy{idempotency.PolicyHold, idempotency.PolicyTakeover} {
			mux.Handle("POST /"+string(policy), guard(t, proxy.URL(), policy))
		}
		service := httptest.NewServer(mux)
		t.Cleanup(service.Close)
		r.owners = append(r.owners, newFront("service "+name, func() *child { return &child{Service: &chaostest.Service{URL: service.URL}} }))
	}
	return r, losses
}

// Requests to Redis are lost before they come, or after they were carried out, or swallowed, while
// clients ask two services in this process: nothing runs twice under hold, and all rules hold.
func TestNothingRunsTwiceWhateverIsLostOnTheWay(t *testing.T) {
	total := loseRequests(t, guarded, func(s *scene) []violation { return s.judge() })
	rows := total.rows(evidence.Ours, false)
	proveWire(t, rows)
}

// The middleware with SETNX is found to run handlers twice by the same, at length: where few
// requests are lost, they may all be such as it stands.
func TestNaiveGuardLosesRequestsOnTheWay(t *testing.T) {
	for range 20 {
		total := loseRequests(t, guardedNaively, (*scene).twice)
		proveWire(t, total.rows("a `SETNX` middleware", true))
		if total.broken[ruleOnce] > 0 {
			return
		}
	}
	t.Error("nothing was found")
}

func proveWire(t *testing.T, rows []evidence.Row) {
	t.Helper()
	for _, row := range rows {
		row.Suite, row.Layer, row.Faults = "tokens on the wire", evidence.InProcess, row.Faults*perRound
		chaostest.Prove(t, row)
	}
}

// loseRequests plays rounds, several at a time, in each of which some requests are lost.
func loseRequests(t *testing.T, guard guardOf, judge func(*scene) []violation) *tally {
	t.Helper()
	books := openPolicy(t)
	t.Setenv("CHAOS_BOOK", books.url) // the handlers are in this process
	total, web, seed := &tally{}, web(t), chaostest.NewLot(t)
	var mu sync.Mutex // of total and seed
	for _, kind := range []struct {
		name string
		fate redistest.Fate
	}{{"connections to Redis cut before a request", redistest.CutBefore}, {"connections to Redis cut before a reply", redistest.CutAfter}, {"requests to Redis swallowed", redistest.Swallow}} {
		var all sync.WaitGroup
		places := make(chan struct{}, atOnce)
		rounds := (*cuts + perRound - 1) / perRound
		for n := range rounds {
			r, losses := wired(t, books, guard)
			mu.Lock()
			lot := chaostest.Another(seed)
			mu.Unlock()
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				s := &scene{history: &history{}, t: t, rig: r, web: web, lot: lot, name: fmt.Sprintf("%d-%d", kind.fate, n)}
				s.fault = fault{name: kind.name, doors: atOwners, hits: everyOne, circumstances: circumstances{redis: true}, strike: func(*scene) func() {
					losses.Lose(perRound, kind.fate)
					return func() {}
				}}
				s.play(20 * time.Millisecond)
				found := judge(s)
				mu.Lock()
				defer mu.Unlock()
				total.add(s, found)
				expect.Equal(t, s.name+": requests that were lost", losses.Lost(), perRound)
			})
		}
		all.Wait()
	}
	t.Logf("in all, %d requests lost in each:\n%s", perRound, total)
	return total
}
