package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// resolvedPayments is a routes file whose doubts end by themselves.
const resolvedPayments = `routes: [{match: POST /payments, resolve: "PUT /operations/{operation}", lease_ms: 2000,
	upstream_timeout_ms: 500, max_wait_ms: 100000}]`

// bank is a service that keeps its payments under the names of operations, and fails as a payment's
// body says: before or after the payment, or with a payment that comes after the time is over.
type bank struct {
	*shop

	t      *testing.T
	mu     sync.Mutex
	rows   map[string]int64 // by operation: its fence, below 0 of one that is closed
	runs   map[string]int
	twice  atomic.Int64
	late   sync.WaitGroup
	asked  atomic.Int64
	silent atomic.Bool // it does not answer questions
}

func newBank(t *testing.T) *bank {
	b := &bank{t: t, rows: map[string]int64{}, runs: map[string]int{}}
	b.shop = newShop(t, b.serve)
	t.Cleanup(b.late.Wait)
	return b
}

// enter makes the row of a payment; false = the operation is closed for it, or was paid.
func (b *bank) enter(operation string, fence int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.rows[operation]
	if max(row, -row) >= fence {
		return false
	}
	if row > 0 {
		b.twice.Add(1)
	}
	b.rows[operation] = fence
	return true
}

func (b *bank) serve(w http.ResponseWriter, r *http.Request) {
	operation := r.Header.Get(idempotency.OperationHeader)
	fence, err := strconv.ParseInt(r.Header.Get(idempotency.FenceHeader), 10, 64)
	if err != nil {
		b.t.Errorf("%s %s: fence %v", r.Method, r.URL, err)
	}
	if r.Method == http.MethodPut {
		b.close(w, r, operation, fence)
		return
	}
	b.mu.Lock()
	b.runs[operation]++
	first := b.runs[operation] == 1
	b.mu.Unlock()
	how := r.URL.Query().Get("how")
	if how == "late" && first {
		b.late.Go(func() {
			time.Sleep(time.Second)
			b.enter(operation, fence)
		})
	}
	if how == "after" || !first {
		b.enter(operation, fence)
	}
	switch {
	case first && how == "late":
		<-r.Context().Done()
	case first:
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprint(w, "paid")
}

// close answers the question what became of a payment.
func (b *bank) close(w http.ResponseWriter, r *http.Request, operation string, fence int64) {
	b.asked.Add(1)
	expect.Equal(b.t, "whether the question says that it is one", r.Header.Get("Idempotency-Resolve"), "true")
	expect.Equal(b.t, "path of the question", r.URL.Path, "/operations/"+operation)
	expect.Equal(b.t, "whether the question has the client's key", r.Header.Get("Idempotency-Key"), "")
	if b.silent.Load() {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	b.mu.Lock()
	paid := b.rows[operation] > 0
	if !paid {
		b.rows[operation] = min(b.rows[operation], -fence)
	}
	b.mu.Unlock()
	if !paid {
		w.Header().Set("Idempotency-Resolution", "not-begun")
		return
	}
	w.Header().Set("Idempotency-Resolution", "completed")
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprint(w, "paid")
}

// A service fails before its effect, after it, or has it after its time is over. Duplicates by two
// gateways all get the answer, and nothing is left in doubt.
func TestServiceSaysWhatBecameOfAnOperation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		b := newBank(t)
		doors := []*rig{start(t, b.URL, resolvedPayments, on(store)), start(t, b.URL, resolvedPayments, on(store))}
		var clients sync.WaitGroup
		for n, how := range []string{"before", "after", "late", "before", "after", "late"} {
			for duplicate := range 6 {
				clients.Go(func() {
					key := fmt.Sprint("Idempotency-Key: ", how, n)
					expect.Eventually(t, "the answer for "+key, func() bool {
						a := doors[duplicate%2].do("POST", "/payments?how="+how, "x", key, willWait)
						return a.status == http.StatusCreated && a.body == "paid" && a.header.Get("Location") == "/payments/1"
					})
				})
			}
		}
		clients.Wait()
		b.late.Wait()
		expect.Equal(t, "payments that came twice", b.twice.Load(), 0)
		found, err := doors[0].g.tokens.Doubts(t.Context())
		expect.NoError(t, "Doubts", err)
		expect.Equal(t, "operations in doubt", found.Operations, 0)
		for operation, row := range b.rows {
			expect.Equal(t, "whether "+operation+" has its effect", row > 0, true)
		}
		expect.Equal(t, "payments", len(b.rows), 6)
		text := doors[0].metrics() + doors[1].metrics()
		expect.Contains(t, "the metrics", text, `coatcheck_gateway_resolutions_total{decision="completed"}`)
	})
}

func (r *rig) metrics() string { return r.admin("/metrics", "localhost", "127.0.0.1:1").Body.String() }

func TestServiceThatDoesNotSayLeavesTheOperationInDoubt(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.silent.Store(true)
	r := start(t, b.URL, resolvedPayments)
	key := "Idempotency-Key: k"
	first := r.do("POST", "/payments?how=after", "x", key)
	told := []any{first.problem().Code, first.problem().Retryable, first.header.Get("Retry-After")}
	expect.Equal(t, "what the first client is told, and when it may ask again", told, []any{api.OutcomeUnknown, true, "1"})
	expect.Eventually(t, "a repeat is told that the service is asked", func() bool {
		a := r.do("POST", "/payments?how=after", "x", key)
		told := a.problem()
		return told.Code == api.IdempotencyUnknown && told.Retryable && a.header.Get("Retry-After") == "1" && b.asked.Load() > 1
	})
	expect.Contains(t, "the log", r.log.String(), "the service answers 404 and 0 headers Idempotency-Resolution")
	b.silent.Store(false)
	a := r.do("POST", "/payments?how=after", "x", key, willWait)
	r.wantPaid(a, "paid", true)
}

// A client that could ask the service's question would close operations that are under way.
func TestClientsDoNotReachAResolver(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	r := start(t, b.URL, `{unmatched: pass, routes: [{match: POST /payments, resolve: "PUT /operations/{operation}"},
		{match: PUT /, guard: false}, {match: "POST /refunds", resolve: "PUT /operations/{operation}"},
		{match: "PUT shop.example/", guard: false}, {match: "PUT pay.example/", required: false}, {match: POST /rails/, method_field: true},
		{match: "POST /other", resolve: "POST /close/{operation}/now/"}]}`, func(c *Config) { c.PreserveHost = true })
	name := strings.Repeat("a", 32)
	for _, headers := range [][]string{nil, {"Idempotency-Key: k"}, {"Idempotency-Resolve: true", "Idempotency-Operation: " + name}} {
		a := r.do("PUT", "/operations/"+name, "", headers...)
		r.wantCode(a, api.RouteUnknown)
		expect.Contains(t, "the detail", a.problem().Detail, "The gateway alone sends this request")
	}
	for _, path := range []string{
		"/operations/" + name + "/", "/Operations/" + name, "/OPERATIONS/" + name, "/close/" + name + "/now", "/close/" + name + "/now/",
	} {
		for _, method := range []string{"PUT", "POST", "put", "DELETE"} {
			for _, host := range []string{"Host: shop.example", "Host: pay.example", "Host: x"} {
				r.wantCode(r.do(method, path, "", host, "Idempotency-Key: k2"), api.RouteUnknown)
			}
		}
	}
	r.wantCode(r.do("PUT", "/%6fperations/"+name, ""), api.PathNotPlain)
	b.wantPaid(t, 0)
}

func TestResolveOfARouteIsCheckedWhenItIsRead(t *testing.T) {
	t.Parallel()
	for resolve, want := range map[string]string{
		"GET /operations/{operation}":           "a method that may change something",
		"/operations/{operation}":               "a method that may change something",
		"PUT shop.example/ops/{operation}":      "a path without a host",
		"PUT /operations":                       "has {operation} once",
		"PUT /{x}/{operation}":                  "no other wildcard",
		"PUT /operations/{operation}/{rest...}": "no other wildcard",
		"PUT /a%2F/{operation}":                 "not plain",
		"PUT /a//{operation}":                   "segments that are empty",
		"POST /payments/{operation}":            "clients must not reach it",
		"PUT /operations/:operation":            "",
	} {
		_, err := ParseRoutes([]byte(fmt.Sprintf(`routes: [{match: "POST /payments/{id}", resolve: %q}]`, resolve)))
		if err == nil || !strings.Contains(err.Error(), "line 1: resolve: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("resolve %q: got %v, want %q", resolve, err, want)
		}
	}
	_, err := ParseRoutes([]byte(`routes: [{match: POST /x, guard: false, resolve: "PUT /operations/{operation}"}]`))
	expect.Equal(t, "whether an unguarded route has no resolver", err != nil, true)
}
