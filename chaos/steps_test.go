//go:build check

package chaos

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/scripts"
)

// The steps of a first request through a gateway, in their order. Those of the handler are told by
// it, those on the way to Redis and back are seen on the wire.
const (
	beforeClaim    = "before the claim"
	afterClaim     = "after the claim, before its reply"
	inHandler      = "in the handler, before the effect"
	afterEffect    = "in the handler, after the effect"
	beforeComplete = "before the answer is recorded"
	afterComplete  = "after the answer is recorded, before the reply"
	afterAnswer    = "after the answer"
)

// What happens at a step.
const (
	gatewayKilled = "the gateway is killed"
	serviceKilled = "the service behind it is killed"
	redisKilled   = "Redis is killed and comes back with its data"
)

// truth is what later requests hear in the end, and what the handler has done.
type truth struct{ status, starts, effects int }

var (
	once        = truth{201, 1, 1}
	doubtUnrun  = truth{409, 0, 0} // the handler never began, but that cannot be known
	doubtBegun  = truth{409, 1, 0}
	doubtBehind = truth{409, 1, 1}
	twoBegun    = truth{201, 2, 1} // another attempt took over from one that had no effect
	// … or had: takeover is for effects that refuse the smaller fence.
	twice = truth{201, 2, 2}
)

// TestEveryStepOfARequestThroughAGatewayCanFail breaks one request at each of its steps. A
// gateway's death does not end the handler behind it.
func TestEveryStepOfARequestThroughAGatewayCanFail(t *testing.T) {
	binary := chaostest.Coatcheck(t)
	for _, row := range []struct {
		what, step     string
		hold, takeover truth
	}{
		{gatewayKilled, beforeClaim, once, once},
		{gatewayKilled, afterClaim, doubtUnrun, once},
		{gatewayKilled, inHandler, doubtBehind, twice},
		{gatewayKilled, afterEffect, doubtBehind, twice},
		{gatewayKilled, beforeComplete, doubtBehind, twice},
		{gatewayKilled, afterComplete, once, once},
		{gatewayKilled, afterAnswer, once, once},

		{serviceKilled, beforeClaim, once, once}, // it is not reached, and the claim is given back
		{serviceKilled, inHandler, doubtBegun, twoBegun},
		{serviceKilled, afterEffect, doubtBehind, twice},
		{serviceKilled, beforeComplete, once, once},
		{serviceKilled, afterAnswer, once, once},

		{redisKilled, beforeClaim, once, once},
		{redisKilled, afterClaim, once, once},
		{redisKilled, inHandler, once, once},
		{redisKilled, afterEffect, once, once},
		{redisKilled, beforeComplete, once, once},
		{redisKilled, afterComplete, once, once},
		{redisKilled, afterAnswer, once, once},
	} {
		for policy, want := range map[string]truth{"hold": row.hold, "takeover": row.takeover} {
			t.Run(fmt.Sprintf("%s/%s/%s", row.what, row.step, policy), func(t *testing.T) {
				t.Parallel()
				w := newWalk(t, binary, row.what, row.step, policy)
				if got := w.walk(); got != want {
					t.Errorf("got %+v, want %+v\n%s", got, want, describe(w.rig.book.copied(w.order.operation), w.of(w.order.name)))
				}
			})
		}
	}
}

// walk is one broken request and what comes after it.
type walk struct {
	*scene

	order      *order
	redis      *redistest.Server
	what, step string

	mu     sync.Mutex
	broken bool
}

func newWalk(t *testing.T, binary, what, step, policy string) *walk {
	r := &rig{t: t, binary: binary, book: openPolicy(t)}
	w := &walk{
		scene: &scene{history: &history{}, t: t, rig: r, web: web(t)}, what: what, step: step,
		order: &order{operation: &operation{name: "order", policy: policy}, header: byKey, key: "key"},
	}
	w.order.watch = w.stepped
	r.book.expect(w.order.operation)
	w.redis = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := redistest.StartProxy(t, w.redis.Addr(), w.judge)
	span := lease / 3
	if what == redisKilled {
		span = time.Minute // Redis is back within the lease, also on a busy machine
	}
	before := r.serveUpstream(routesFile(0, span))
	r.gateways = []*front{newFront("gateway", func() *child { return r.coatcheck("gateway", proxy.URL(), 0, before...) })}
	w.order.doors = r.gateways
	return w
}

// judge looks for the claim and the recording on the wire.
func (w *walk) judge(request []byte) (fate redistest.Fate, then func()) {
	for _, at := range []struct {
		script        *scripts.Script
		before, after string
	}{{scripts.TokenClaim, beforeClaim, afterClaim}, {scripts.TokenComplete, beforeComplete, afterComplete}} {
		switch {
		case !bytes.Contains(request, []byte(at.script.Text().SHA)):
		case w.here(at.before):
			if w.what == serviceKilled {
				w.strike()
				return redistest.Pass, nil
			}
			return redistest.CutBefore, w.strike
		case w.here(at.after):
			return redistest.CutAfter, w.strike
		}
	}
	return redistest.Pass, nil
}

func (w *walk) stepped(at step) {
	if at == begun && w.here(inHandler) || at == effected && w.here(afterEffect) {
		w.strike()
	}
}

// here tells, once, that this is the step where the request breaks.
func (w *walk) here(step string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step != w.step || w.broken {
		return false
	}
	w.broken = true
	return true
}

func (w *walk) strike() {
	switch w.what {
	case gatewayKilled:
		w.rig.gateways[0].kill()
	case serviceKilled:
		w.rig.upstream.kill()
	case redisKilled:
		w.redis.Kill()
		w.redis.Restart()
	}
}

// walk sends the request that breaks, mends what broke, and asks until the answer is final and once
// more. Redis is told the scripts before, so that the wire shows their hashes.
func (w *walk) walk() truth {
	w.t.Helper()
	for _, script := range []*scripts.Script{scripts.TokenClaim, scripts.TokenComplete} {
		expect.NoError(w.t, "ScriptLoad", w.redis.Client().ScriptLoad(w.t.Context(), script.Text().Source).Err())
	}
	c := &client{scene: w.scene, order: w.order, name: "client"}
	first, _ := c.ask(w.t.Context())
	if w.here(afterAnswer) {
		if first.status != http.StatusCreated {
			w.t.Fatalf("the first request: %v", first)
		}
		w.strike()
	}
	if w.mu.Lock(); !w.broken {
		w.t.Errorf("the request never came to the step: %v", first)
	}
	w.mu.Unlock()
	switch w.what {
	case gatewayKilled:
		w.rig.gateways[0].restart()
	case serviceKilled:
		w.rig.upstream.restart()
	}
	c.settle(w.t.Context())
	c.settle(w.t.Context())
	written, answers := w.rig.book.copied(w.order.operation), w.of(w.order.name)
	for _, v := range check(written, answers, circumstances{redis: w.what == redisKilled}) {
		w.t.Errorf("broken: %s: %s", v.rule, v.text)
	}
	got := truth{answers[len(answers)-1].status, len(written.runs), 0}
	for _, r := range written.runs {
		if r.effect {
			got.effects++
		}
	}
	return got
}
