//go:build nightly

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const (
	longestHandler = 20 * time.Second
	// how many operations of each kind are under way at a time.
	askers = 30
	// how long clients ask before the first instance is stopped.
	steady = 3 * time.Second
	// how long one operation may take, which tells a hang: it waits for a lease of 30 s at most.
	operationLimit = 90 * time.Second
)

// TestRollingRestartLeavesNothingInDoubt has two gateways and two services with their default
// settings replaced in turn, each after SIGTERM, while clients use them. Handlers take up to 20 s.
// Two clients share each key, and one of them hangs up and asks again. All are answered in the end,
// alike; no key is in doubt, and no handler begins twice.
func TestRollingRestartLeavesNothingInDoubt(t *testing.T) {
	t.Parallel()
	r := newRolling(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var load sync.WaitGroup
	for range askers {
		for _, k := range r.kinds {
			load.Go(func() { r.ask(ctx, k) })
		}
	}
	time.Sleep(steady)
	r.replace(0)
	time.AfterFunc(steady, end)
	r.replace(1)
	load.Wait()
	r.judge()
}

// rolling is a run of the test above.
type rolling struct {
	t                 *testing.T
	rig               *rig
	gateways, servers *balancer
	kinds             []kindOfOperation

	mu  sync.Mutex
	all []*rollingOperation

	underWay                       atomic.Int64 // handlers that ran at a SIGTERM
	requests, hungUp, cut, refused atomic.Int64
}

// kindOfOperation is how clients have an operation done.
type kindOfOperation struct {
	name string
	at   *balancer
	// ask asks for the operation once. The answer's status is 0 where no answer came.
	ask func(ctx context.Context, web *http.Client, o *rollingOperation) answer
	// patient is for clients that must not hang up.
	patient bool
}

// rollingOperation is an operation, and what its two clients were told in the end.
type rollingOperation struct {
	*operation

	kind    string
	takes   time.Duration
	token   func() string // of a job
	answers [2]answer
}

func newRolling(t *testing.T) *rolling {
	t.Helper()
	r := &rig{t: t, binary: chaostest.Coatcheck(t), book: openPolicy(t)}
	redis := redistest.Start(t).URL()
	before := r.serveUpstream("routes:\n- {match: POST /hold}\n")
	run := &rolling{t: t, rig: r, gateways: newBalancer(t), servers: newBalancer(t)}
	for _, name := range []string{"A", "B"} {
		// a service's demo takes the same time for all payments: its first life takes longest
		delay := longestHandler
		run.gateways.fronts = append(run.gateways.fronts, newFront("gateway "+name, func() *child {
			return r.plain("gateway", redis, before...)
		}))
		run.servers.fronts = append(run.servers.fronts, newFront("service "+name, func() *child {
			defer func() { delay = longestHandler / 10 }()
			return r.plain("serve", redis, "--dev", "--payment-delay", delay.String())
		}))
	}
	run.kinds = []kindOfOperation{
		{name: "request to the gateway", at: run.gateways, ask: askGateway},
		{name: "payment at the service", at: run.servers, ask: askForPayment},
		{name: "job with a token of the service", at: run.servers, ask: run.doJob, patient: true},
	}
	return run
}

// plain starts the program with a subcommand, and with the default of each setting that is not
// given.
func (r *rig) plain(command, redis string, args ...string) *child {
	args = append([]string{command, "--json", "--listen", "127.0.0.1:0", "--redis", redis}, args...)
	if *stopTimeout > 0 {
		args = append(args, "--stop-timeout", stopTimeout.String())
	}
	return launch(r.t, nil, r.binary, args...)
}

// ask has one new operation after the other done, each by two clients.
func (r *rolling) ask(ctx context.Context, k kindOfOperation) {
	for ctx.Err() == nil {
		o := &rollingOperation{kind: k.name, takes: rand.N(longestHandler)}
		r.mu.Lock()
		o.operation = &operation{name: fmt.Sprintf("rolling-%d", len(r.all)), policy: "hold"}
		r.all = append(r.all, o)
		r.mu.Unlock()
		r.rig.book.expect(o.operation)
		o.token = sync.OnceValue(r.issue)
		var both sync.WaitGroup
		both.Go(func() { o.answers[0] = r.until(k, o, true) })
		both.Go(func() { o.answers[1] = r.until(k, o, k.patient) })
		both.Wait()
	}
}

// until repeats a request until the answer is final. An impatient client hangs up after a while,
// and asks again.
func (r *rolling) until(k kindOfOperation, o *rollingOperation, patient bool) (a answer) {
	for end := time.Now().Add(operationLimit); time.Now().Before(end); time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond)) {
		ctx, hangUp := context.WithTimeout(r.t.Context(), operationLimit)
		if !patient {
			time.AfterFunc(500*time.Millisecond+rand.N(6*time.Second), hangUp)
		}
		r.requests.Add(1)
		a = k.ask(ctx, k.at.client(), o)
		gone := ctx.Err() != nil
		hangUp()
		switch {
		case gone:
			r.hungUp.Add(1)
		case a.status == 0:
			r.cut.Add(1)
		case a.status == http.StatusServiceUnavailable:
			r.refused.Add(1)
		}
		if a.settled() {
			return a
		}
	}
	return a
}

// replace stops both programs' instance of that number, and starts new ones in their place.
func (r *rolling) replace(number int) {
	r.underWay.Add(r.running())
	var both sync.WaitGroup
	for _, f := range []*front{r.gateways.fronts[number], r.servers.fronts[number]} {
		both.Go(func() {
			process, name := f.process()
			began := time.Now()
			process.Finish()
			r.t.Logf("%s ended %.1f s after SIGTERM", name, time.Since(began).Seconds())
			if code := process.Code(); code != 0 {
				r.t.Errorf("%s was asked to end: got exit code %d, want 0\n%s", name, code, process.Log)
			}
		})
	}
	both.Wait()
	r.gateways.fronts[number].restart()
	r.servers.fronts[number].restart()
}

// running returns how many handlers have begun and not ended.
func (r *rolling) running() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.all {
		for _, run := range r.rig.book.copied(o.operation).runs {
			if !run.ended {
				n++
			}
		}
	}
	return n
}

// judge looks at what clients were told, and at how often each handler began.
func (r *rolling) judge() {
	r.chargesAreNoted()
	figures := map[string]int{}
	for _, o := range r.all {
		runs := len(r.rig.book.copied(o.operation).runs)
		figures[o.kind]++
		if runs != 1 {
			figures["twice"] += max(0, runs-1)
			r.t.Errorf("%s, %s of %v: its handler began %d times, want once", o.name, o.kind, o.takes, runs)
		}
		for _, a := range o.answers {
			if a.code == inDoubt {
				figures["in doubt"]++
			}
			if a.status != http.StatusCreated || a.body != o.answers[0].body {
				r.t.Errorf("%s, %s of %v: got %v, want 201 with the same body for both clients (the other: %v)", o.name, o.kind, o.takes, a, o.answers[0])
			}
		}
	}
	for _, k := range r.kinds {
		r.t.Logf("%d times a %s", figures[k.name], k.name)
	}
	r.t.Logf("%d requests, of which %d hung up, %d had no answer and %d were refused; %d handlers ran when a process was stopped; in doubt %d, twice %d",
		r.requests.Load(), r.hungUp.Load(), r.cut.Load(), r.refused.Load(), r.underWay.Load(), figures["in doubt"], figures["twice"])
	if r.underWay.Load() == 0 || r.hungUp.Load() == 0 {
		r.t.Error("the restarts met no handler, or no client hung up")
	}
}
