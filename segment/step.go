package segment

import (
	"cmp"
	"math"
	"time"
)

// maxDepth is how many ranges at most are kept ready after the current one.
const maxDepth = 8

// pace is the step of a tag. It follows the demand, so that a range lasts for a period.
type pace struct {
	fetches int64 // that brought a range
	step    int64 // of the last of them; 0 = the source's own
	least   int64
	depth   int       // how many ranges are to be ready after the current one
	deep    time.Time // when the depth was changed last
	last    sample    // at the last of the fetches
	base    sample    // at one of them, a period ago or more once there was one
	starved bool      // callers found nothing since
}

// sample is how many ids were drawn up to a time.
type sample struct {
	at    time.Time
	drawn int64
}

// plan is the size and purpose of one fetch.
type plan struct {
	sample

	step    int64
	depth   int
	deep    time.Time
	starved bool
}

// next plans a fetch. The first asks for the source's own step, the second for the same again:
// there is nothing to judge by yet.
func (p *pace) next(config *Config, now sample) plan {
	next := plan{sample: now, step: p.step, depth: max(p.depth, 1), deep: p.deep, starved: p.starved}
	p.starved = false
	if p.fetches < 2 {
		return next
	}
	next.step = p.bounded(p.ideal(next, config.Period), config.MaxStep)
	switch {
	// longer ranges are not available, so there must be more of them
	case next.starved && next.step <= p.step:
		next.depth, next.deep = min(2*next.depth, maxDepth), now.at
	case now.at.Sub(p.deep) >= config.Period:
		next.depth, next.deep = max(next.depth/2, 1), now.at
	}
	return next
}

// ideal is the step that would last for a period. A rise of the demand shows since the last fetch;
// a fall only after a whole period, or each burst would be followed by a fall.
func (p *pace) ideal(now plan, period time.Duration) float64 {
	step := float64(p.step)
	switch recent := now.demand(p.last, period); {
	case now.starved: // demand was cut off, and does not show in what was drawn
		return math.Inf(1)
	case recent >= step:
		return recent
	case now.at.Sub(p.base.at) < period:
		return step
	}
	return min(now.demand(p.base, period), step)
}

// demand is how many ids would be drawn in a period, if it went on as since another sample.
func (s sample) demand(since sample, period time.Duration) float64 {
	drawn, elapsed := s.drawn-since.drawn, s.at.Sub(since.at)
	return float64(drawn) * float64(period) / float64(max(elapsed, 1))
}

// bounded keeps the next step within a factor of 2 of the last, and within its bounds. Doubling
// stops where twice would be more than the most.
func (p *pace) bounded(ideal float64, most int64) int64 {
	last := float64(p.step)
	step := min(max(ideal, last/2), last*2)
	if step == last*2 && step > float64(most) {
		step = last
	}
	return max(int64(math.Round(min(step, float64(most)))), p.least)
}

// succeed records that a fetch brought a range of count ids, with the source's least step.
func (p *pace) succeed(config *Config, done plan, count, least int64) {
	if least > 0 {
		p.least = least
	}
	p.fetches++
	p.step, p.depth, p.deep, p.last = done.step, done.depth, done.deep, done.sample
	if p.fetches == 1 || done.at.Sub(p.base.at) >= config.Period {
		p.base = done.sample
	}
	p.step = cmp.Or(p.step, max(least, 0), min(count, config.MaxStep))
}

// fail records that a fetch brought nothing.
func (p *pace) fail(done plan) { p.starved = p.starved || done.starved }
