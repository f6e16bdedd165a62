package idempotency

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// The steps of a first request, in their order. The handler reports its own; those to and from
// Redis are seen on the wire.
const (
	beforeClaim    = "before the claim"
	afterClaim     = "after the claim, before its reply"
	inHandler      = "in the handler, before the effect"
	afterEffect    = "in the handler, after the effect"
	beforeComplete = "before the answer is recorded"
	afterComplete  = "after the answer is recorded, before the reply"
	answered       = "after the answer"
)

// What happens at a step.
const (
	killed   = "the owner is killed"
	lost     = "Redis is killed and comes back with its data"
	cut      = "the connection to Redis is lost"
	panicked = "the handler panics"
	hungUp   = "the client hangs up"
)

// truth is the final answer to later requests, and how often the handler has begun and has had its
// effect.
type truth struct {
	status          int
	starts, effects int
}

var (
	once       = truth{201, 1, 1} // one run, and every request has its answer
	doubtUnrun = truth{409, 0, 0} // the handler never began, but that is unknown
	doubtBegun = truth{409, 1, 0}
	doubtAfter = truth{409, 1, 1}
	twoBegun   = truth{201, 2, 1} // another attempt took over before the effect
	// … or after it: takeover is for effects that refuse the smaller fence.
	twice = truth{201, 2, 2}
)

// TestEveryStepOfARequestCanFail breaks a request at each of its steps in each way, under both
// policies, and checks what the handler has done and what later requests get.
func TestEveryStepOfARequestCanFail(t *testing.T) {
	for _, row := range []struct {
		step, what     string
		hold, takeover truth
	}{
		{beforeClaim, killed, once, once},
		{afterClaim, killed, doubtUnrun, once},
		{inHandler, killed, doubtBegun, twoBegun},
		{afterEffect, killed, doubtAfter, twice},
		{beforeComplete, killed, doubtAfter, twice},
		{afterComplete, killed, once, once},
		{answered, killed, once, once},

		{beforeClaim, lost, once, once},
		{afterClaim, lost, once, once},
		{inHandler, lost, once, once},
		{afterEffect, lost, once, once},
		{beforeComplete, lost, once, once},
		{afterComplete, lost, once, once},
		{answered, lost, once, once},

		{beforeClaim, cut, once, once},
		{afterClaim, cut, once, once},
		{beforeComplete, cut, once, once},
		{afterComplete, cut, once, once},

		{inHandler, panicked, doubtBegun, twoBegun},
		{afterEffect, panicked, doubtAfter, twice},

		{afterClaim, hungUp, once, once},
		{inHandler, hungUp, once, once},
		{afterEffect, hungUp, once, once},
		{beforeComplete, hungUp, once, once},
	} {
		for policy, want := range map[Policy]truth{PolicyHold: row.hold, PolicyTakeover: row.takeover} {
			t.Run(fmt.Sprintf("%s/%s/%s", row.what, row.step, policy), func(t *testing.T) {
				t.Parallel()
				walk := newWalk(t, row.step, row.what, policy)
				walk.first()
				expect.Equal(t, "what later requests get, and what the handler has done", walk.settle(), want)
			})
		}
	}
}

// walk is one broken request and what comes after it.
type walk struct {
	t          *testing.T
	step, what string
	policy     Policy
	redis      *redistest.Server // of this walk alone, if it is lost; else nil
	space      redistest.Space   // without the proxy
	control    *httptest.Server
	owner      *owner
	hangUp     context.CancelFunc
	struck     chan struct{} // closed when it has happened

	mu     sync.Mutex
	broken bool
	counts map[string]int
}

const key = "order-1"

func newWalk(t *testing.T, step, what string, policy Policy) *walk {
	t.Helper()
	w := &walk{t: t, step: step, what: what, policy: policy, struck: make(chan struct{}), counts: map[string]int{}}
	if what == lost {
		w.redis = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		w.space = redistest.Space{URL: w.redis.URL()}
	} else {
		w.space = redistest.Shared(t)
	}
	w.control = httptest.NewServer(http.HandlerFunc(w.asked))
	t.Cleanup(w.control.Close)
	proxy := redistest.StartProxy(t, strings.TrimPrefix(w.space.URL, "redis://"), w.judge)
	proxied := redistest.Space{URL: proxy.URL(), Prefix: w.space.Prefix}
	if what == killed {
		w.owner = startOwner(t, proxied, w.control.URL, policy)
	} else {
		w.owner = serveHere(t, newTokens(t, open(t, proxied)), w.control.URL, policy)
	}
	return w
}

func open(t *testing.T, space redistest.Space) *redisstore.Store {
	t.Helper()
	return storetest.Open(t, redisstore.Config{URL: space.URL, Prefix: space.Prefix, Timeout: ownerPatience})
}

// asked is what the handler asks at its steps.
func (w *walk) asked(answer http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "effect" { // the handler asks after its effect
		w.count("effect")
		if w.here(afterEffect) {
			w.breakIt(answer)
		}
		return
	}
	w.count("start")
	if w.here(inHandler) {
		w.breakIt(answer)
	}
}

func (w *walk) breakIt(answer http.ResponseWriter) {
	if w.what == panicked {
		answer.WriteHeader(http.StatusTeapot)
		close(w.struck)
		return
	}
	w.strike()
}

// judge finds the claim and the recording on the wire.
func (w *walk) judge(request []byte) (fate redistest.Fate, then func()) {
	for _, at := range []struct {
		script        *scripts.Script
		before, after string
	}{{scripts.TokenClaim, beforeClaim, afterClaim}, {scripts.TokenComplete, beforeComplete, afterComplete}} {
		if !bytes.Contains(request, []byte(at.script.Text().SHA)) {
			continue
		}
		switch {
		case w.what == hungUp && (w.here(at.before) || w.here(at.after)):
			w.strike()
		case w.here(at.before):
			return redistest.CutBefore, w.strike
		case w.here(at.after):
			return redistest.CutAfter, w.strike
		}
	}
	return redistest.Pass, nil
}

// here reports, once, that this is the step where the request breaks.
func (w *walk) here(step string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step != w.step || w.broken {
		return false
	}
	w.broken = true
	return true
}

func (w *walk) count(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name]++
}

// strike does what happens.
func (w *walk) strike() {
	defer close(w.struck)
	switch w.what {
	case killed:
		w.owner.kill()
	case lost:
		w.redis.Kill()
		w.redis.Restart()
	case hungUp:
		w.hangUp()
	}
}

// first sends the request that breaks. Another key has loaded the scripts into Redis before, so
// that the wire shows their hashes.
func (w *walk) first() {
	w.t.Helper()
	post(newTokens(w.t, open(w.t, w.space)).Middleware(Route{Name: "other"})(&handler{}), "x", KeyHeader+": other")
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.hangUp = cancel
	status, body := w.owner.pay(ctx, key)
	if w.here(answered) {
		if status != http.StatusCreated {
			w.t.Fatalf("the first request: got %d %s, want 201", status, body)
		}
		w.strike()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.broken {
		w.t.Fatalf("the first request: got %d %s, and it never came to the step", status, body)
	}
	switch status {
	case 0, http.StatusCreated, http.StatusServiceUnavailable:
	default:
		w.t.Errorf("the first request: got %d %s, want 201, 503 or no answer", status, body)
	}
}

// settle asks again until the answer is final, and asks once more to see that it stays. If the
// owner has ended, its lease ends, and another is asked.
func (w *walk) settle() truth {
	w.t.Helper()
	<-w.struck
	owner := w.owner
	if w.what == killed {
		tokens := newTokens(w.t, open(w.t, w.space))
		if at := tokens.keys(Key{Scope: "pay", ID: key})[0]; strings.HasPrefix(record(w.t, tokens, at), "claimed\t") {
			setWord(w.t, tokens, at, "until", "1")
		}
		owner = serveHere(w.t, tokens, w.control.URL, w.policy)
	}
	status, body := 0, ""
	expect.Eventually(w.t, "a final answer", func() bool {
		status, body = owner.pay(w.t.Context(), key)
		return status == http.StatusCreated || strings.Contains(body, "idempotency-outcome-unknown")
	})
	if again, text := owner.pay(w.t.Context(), key); again != status || status == http.StatusCreated && text != body {
		w.t.Errorf("a later request: got %d %s, and then %d %s, want the same", status, body, again, text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return truth{status, w.counts["start"], w.counts["effect"]}
}
