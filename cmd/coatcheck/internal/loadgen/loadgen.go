package loadgen

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Plan is a run of load. All but Call and one of Duration and Requests have defaults beside them.
type Plan struct {
	// the n-th call, from 0 on; called by many at once. Its context ends Grace after the run's end
	Call func(ctx context.Context, n int64) error
	Code func(error) string // a word for a kind of error; nil = all are "error"

	Concurrency int           // callers; 0 = 1
	Duration    time.Duration // how long calls are begun; 0 = until Requests
	Requests    int64         // how many calls; 0 = until Duration
	Rate        float64       // calls a second, open loop; 0 = closed loop
	WarmUp      time.Duration // the same load before, which is not recorded
	Grace       time.Duration // how long calls under way may take at the end; 0 = 10 s

	Every time.Duration // length of a row; 0 = 1 s
	// is told each row as it ends, and does not come from two goroutines at once; nil = none is
	Progress func(Row)
}

// MaxRate is the most that a plan may ask for, in calls a second.
const MaxRate = 10_000_000

func (p Plan) withDefaults() (Plan, error) {
	switch {
	case p.Call == nil:
		return p, errors.New("loadgen: nothing to call")
	case p.Duration <= 0 && p.Requests <= 0:
		return p, errors.New("loadgen: neither a duration nor a number of requests")
	case p.Concurrency < 0 || p.Duration < 0 || p.Requests < 0 || p.WarmUp < 0 || p.Grace < 0 || p.Every < 0:
		return p, errors.New("loadgen: a negative setting")
	case math.IsNaN(p.Rate) || p.Rate < 0 || p.Rate > MaxRate:
		return p, errors.New("loadgen: the rate is not from 0 to 10,000,000 a second")
	}
	p.Concurrency = max(p.Concurrency, 1)
	if p.Code == nil {
		p.Code = func(error) string { return "error" }
	}
	p.Grace = cmp.Or(p.Grace, 10*time.Second)
	p.Every = cmp.Or(p.Every, time.Second)
	return p, nil
}

// Run makes the load and returns what was measured. When the context ends no more calls are begun,
// those under way may end, and the result is of these. The error is about the plan.
func Run(ctx context.Context, plan Plan) (*Result, error) {
	plan, err := plan.withDefaults()
	if err != nil {
		return nil, err
	}
	if plan.WarmUp > 0 {
		warm := plan
		warm.Duration, warm.Requests, warm.Progress = plan.WarmUp, 0, nil
		newRun(ctx, warm).run()
	}
	return newRun(ctx, plan).run(), nil
}

type run struct {
	Plan

	ctx      context.Context // ends the beginning of calls
	recorder *recorder
	start    time.Time
	next     atomic.Int64 // number of the next call
	begun    atomic.Int64
	stopped  time.Duration // when no more calls were begun, if a context ended that
}

func newRun(ctx context.Context, plan Plan) *run {
	return &run{Plan: plan, ctx: ctx, recorder: newRecorder(min(plan.Concurrency, maxShards))}
}

// run makes the calls, takes rows of them, and waits for the last.
func (r *run) run() *Result {
	calls, cut := context.WithCancel(context.WithoutCancel(r.ctx))
	defer cut()
	r.start = time.Now()
	begin, stop := r.beginning()
	defer stop()
	var callers sync.WaitGroup
	for i := range r.Concurrency {
		callers.Go(func() { r.caller(begin, calls, r.recorder.shards[i%len(r.recorder.shards)]) })
	}
	done := make(chan struct{})
	go func() {
		callers.Wait()
		close(done)
	}()
	rows := r.rows(begin, done, cut)
	return r.result(rows)
}

// beginning is the context in which calls are begun.
func (r *run) beginning() (context.Context, context.CancelFunc) {
	if r.Duration > 0 {
		return context.WithDeadline(r.ctx, r.start.Add(r.Duration))
	}
	return context.WithCancel(r.ctx)
}

// caller makes one call after the other until there are no more.
func (r *run) caller(begin, calls context.Context, into *shard) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		n := r.next.Add(1) - 1
		if r.Requests > 0 && n >= r.Requests {
			return
		}
		meant, ok := r.await(begin, n, timer)
		if !ok {
			return
		}
		r.begun.Add(1)
		sent := time.Now()
		err := r.Call(calls, n)
		end := time.Now()
		code := ""
		if err != nil {
			code = r.Code(err)
		}
		into.record(end.Sub(meant), sent.Sub(meant), err, code)
	}
}

// await waits for the moment for which a call is meant, and reports whether it may still begin.
func (r *run) await(begin context.Context, n int64, timer *time.Timer) (meant time.Time, ok bool) {
	now := time.Now()
	if r.Rate == 0 {
		return now, begin.Err() == nil && r.before(now)
	}
	meant = r.start.Add(r.meant(n))
	wait := meant.Sub(now)
	if wait <= 0 { // behind
		return meant, begin.Err() == nil && r.before(now)
	}
	timer.Reset(wait)
	select {
	case <-timer.C:
		return meant, r.ctx.Err() == nil && r.before(meant)
	case <-begin.Done(): // perhaps just as the call was to begin
		return meant, r.ctx.Err() == nil && r.before(meant) && !time.Now().Before(meant)
	}
}

// before reports whether a moment lies before the end of the duration, if there is one.
func (r *run) before(at time.Time) bool {
	return r.Duration == 0 || at.Sub(r.start) < r.Duration
}

// meant is when the n-th call of an open loop is to be sent, from the start on.
func (r *run) meant(n int64) time.Duration {
	return time.Duration(float64(n) / r.Rate * float64(time.Second))
}

// rows takes a row each time one is full, until all calls are over. After the end of the run calls
// have Grace to end.
func (r *run) rows(begin context.Context, done <-chan struct{}, cut func()) (rows []Row) {
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	ended := begin.Done()
	var patience <-chan time.Time
	take := func() {
		row := r.recorder.row(time.Since(r.start))
		if row.Done+row.Failed == 0 && row.Took < r.Every && len(rows) > 0 {
			return // nothing was left for the last one
		}
		rows = append(rows, row)
		if r.Progress != nil {
			r.Progress(row)
		}
	}
	for {
		select {
		case <-tick.C:
			take()
		case <-ended:
			r.stopped, ended = time.Since(r.start), nil
			grace := time.NewTimer(r.Grace)
			defer grace.Stop()
			patience = grace.C
		case <-patience:
			cut()
		case <-done:
			take()
			return rows
		}
	}
}

func (r *run) result(rows []Row) *Result {
	took := time.Since(r.start)
	result := &Result{Started: r.start, Took: took, Rows: rows, Rate: r.Rate, Interrupted: r.ctx.Err() != nil}
	r.recorder.into(result)
	if r.Rate > 0 {
		result.Unsent = max(r.meantBy(took)-r.begun.Load(), 0)
	}
	return result
}

// meantBy is how many calls of an open loop were meant until it ended.
func (r *run) meantBy(took time.Duration) int64 {
	window := took
	switch {
	case r.ctx.Err() != nil && r.stopped > 0:
		window = r.stopped
	case r.ctx.Err() == nil && r.Duration > 0:
		window = min(took, r.Duration)
	}
	meant := int64(math.Ceil(window.Seconds() * r.Rate))
	if r.Requests > 0 {
		meant = min(meant, r.Requests)
	}
	return meant
}
