package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// limits are the handlers of /limit.
type limits struct {
	limits  *limit.Limits
	metrics *metrics.Service
	journal *journal
}

func (h *limits) routes(at *router) {
	at.use.handle("POST /limit/:name", "limit.Take", smallPrice, h.take, no)
	at.admin.handle("DELETE /limit/:name", "limit.Reset", smallPrice, h.reset, no)
}

func (h *limits) take(r *request) error {
	name := r.name("name")
	rate, cost := limitOf(r)
	if cost < 0 {
		r.mustBe(access.Admin, "cost") // nobody knows who took what it frees
	}
	if r.err != nil {
		return r.err
	}
	state, err := h.limits.Take(r.ctx(), name, rate, cost)
	h.metrics.LimitAsked(cost, limitOutcome(err))
	until := state.Reset
	if reached, is := errors.AsType[*limit.ReachedError](err); is {
		state, until = reached.State, reached.Wait // as Retry-After
	} else if err != nil {
		return err
	}
	if cost < 0 {
		h.journal.did(r, api.Event{Kind: events.LimitReturned, Name: name})
	}
	addRateLimit(r, rate, state.Remaining, until)
	return r.result(api.LimitTaken{Allowed: true, Remaining: state.Remaining, ResetMs: millisUp(state.Reset)}, err)
}

// limitOf reads the rate and the cost.
func limitOf(r *request) (rate limit.Rate, cost int) {
	var asked api.LimitRequest
	r.body(&asked)
	if asked.Rate == nil {
		r.invalid("rate", "required: how much may be taken in per_ms")
	}
	if asked.PerMs == nil {
		r.invalid("per_ms", "required: the span of time that rate is of, such as 1000 for a second")
	}
	rate.N = count(r, "rate", asked.Rate, limit.MaxN)
	rate.Per = r.millis("per_ms", asked.PerMs, 0, time.Millisecond, limit.MaxPer)
	if asked.Burst != nil {
		rate.Burst = count(r, "burst", asked.Burst, limit.MaxN)
	}
	if r.err == nil && rate.Check() != nil {
		r.invalid("burst", fmt.Sprintf("at this rate a whole number from 1 to %d, which is free again within ten years", rate.MaxBurst()))
	}
	if asked.Cost == nil {
		return rate, 1
	}
	if *asked.Cost < -limit.MaxN || *asked.Cost > int64(rate.Size()) {
		r.invalid("cost", fmt.Sprintf("a whole number from %d to the burst, %d", -limit.MaxN, rate.Size()))
	}
	return rate, int(*asked.Cost)
}

func limitOutcome(err error) string {
	switch {
	case err == nil:
		return metrics.Allowed
	case errors.Is(err, limit.ErrReached):
		return string(metrics.OutcomeRefused)
	}
	return metrics.Failed
}

// addRateLimit adds the limit to those that the caller itself may have: both headers are lists.
func addRateLimit(r *request, rate limit.Rate, remaining int, until time.Duration) {
	add := func(name, item string) {
		if its := r.Response().Header().Get(name); its != "" {
			item = its + ", " + item
		}
		r.Response().Header().Set(name, item)
	}
	add("Ratelimit-Policy", fmt.Sprintf(`"limit";q=%d;w=%d`, rate.Size(), seconds(rate.Whole())))
	add("Ratelimit", fmt.Sprintf(`"limit";r=%d;t=%d`, remaining, seconds(until)))
}

// addLimit adds to a problem what is known of a limit that is reached.
func addLimit(problem *api.Problem, err error) {
	if reached, is := errors.AsType[*limit.ReachedError](err); is {
		problem.Allowed, problem.Remaining = new(false), new(reached.Remaining)
		problem.ResetMs, problem.RetryAfterMs = new(millisUp(reached.Reset)), new(millisUp(reached.Wait))
	}
}

// millisUp rounds up.
func millisUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func (h *limits) reset(r *request) error {
	name := r.name("name")
	r.noFields()
	if r.err != nil {
		return r.err
	}
	if err := h.limits.Reset(r.ctx(), name); err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.LimitReset, Name: name})
	return r.done()
}
