package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	peer "github.com/bwmarrin/snowflake"

	"github.com/coatcheck/coatcheck/snowflake"
)

// The ways to get an id that the ids command compares. All but the first have 21 bits of sequence
// and 1 of worker id, so that the sequence is not the limit.
const (
	atomicAdd      = "atomic add"
	coatcheckNext  = "coatcheck"
	coatcheckBatch = "coatcheck, 256 at once"
	bwmarrin       = "bwmarrin"
)

const (
	wideLayout = "41/1/21"
	twitterMax = 4_096_000 // ids in a second of the layout 41/10/12
)

// idSide is one of them.
type idSide struct {
	name string
	draw func(n int) error // draws n ids; safe for concurrent use
	end  func()
}

// idsCommand measures what an id costs, how close a generator comes to its layout's limit and at
// what price.
func idsCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("ids", flag.ContinueOnError)
	rounds := flags.Int("rounds", 15, "rounds, in each of which every side is measured once for each number of callers")
	seconds := flags.Float64("seconds", 0.2, "length of each measured span")
	sustained := flags.Float64("sustained", 10, "seconds at the limit of layout 41/10/12")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 || *seconds < 0.001 || *seconds > 600 || *sustained < 0.01 || *sustained > 600 {
		return usageError{fmt.Errorf("at least one round, spans of 0.001 to 600 s, and 0.01 to 600 s sustained")}
	}
	result := &table{
		Title: "ids", When: time.Now().UTC().Truncate(time.Second), Rounds: *rounds, Seconds: *seconds,
		Machine: aboutGo(),
		Columns: []string{"what", "side", "callers", "value", "unit", "ratio", "middle half"},
	}
	if err := compareIDs(ctx, result, *rounds, span(*seconds)); err != nil {
		return err
	}
	if err := sustainAll(ctx, result, span(*sustained)); err != nil {
		return err
	}
	result.Notes = append(result.Notes,
		"ratio: an id's time to that of an atomic addition in the same round, and in the rows of x bwmarrin the other way round; at the "+
			"limit, the ids to those that the layout has.")
	return out.write(stdout, result)
}

func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// compareIDs measures every side once in each round, for one caller and for many.
func compareIDs(ctx context.Context, result *table, rounds int, span time.Duration) error {
	sides, err := idSides(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, side := range sides {
			side.end()
		}
	}()
	for _, callers := range []int{1, max(2, runtime.NumCPU())} {
		costs := make([][]float64, len(sides))
		for round := range rounds {
			for i := range sides {
				at := (i + round) % len(sides) // another one begins
				cost, err := costOf(ctx, sides[at].draw, callers, span)
				if err != nil {
					return fmt.Errorf("%s: %w", sides[at].name, err)
				}
				costs[at] = append(costs[at], cost)
			}
		}
		idRows(result, sides, costs, callers)
	}
	return nil
}

func idRows(result *table, sides []idSide, costs [][]float64, callers int) {
	var own, theirs []float64
	for i, side := range sides {
		r := ratios(costs[i], costs[0])
		result.keep(fmt.Sprintf("an id, callers: %d", callers), side.name, "ns", costs[i])
		result.add("an id", side.name, callers, median(costs[i]), "ns", median(r), spread(r))
		switch side.name {
		case coatcheckNext:
			own = costs[i]
		case bwmarrin:
			theirs = costs[i]
		}
	}
	r := ratios(theirs, own)
	result.add("x bwmarrin", coatcheckNext, callers, median(r), "times as fast", median(r), spread(r))
}

// costOf is the nanoseconds between two ids, of all callers together.
func costOf(ctx context.Context, draw func(int) error, callers int, span time.Duration) (float64, error) {
	const several = 4096
	var drawn atomic.Int64
	errs := make([]error, callers)
	var all sync.WaitGroup
	start := time.Now()
	for i := range callers {
		all.Go(func() {
			for time.Since(start) < span && errs[i] == nil {
				if errs[i] = draw(several); errs[i] == nil {
					errs[i] = ctx.Err()
				}
				drawn.Add(several)
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(took.Nanoseconds()) / float64(drawn.Load()), nil
}

func idSides(ctx context.Context) ([]idSide, error) {
	next, err := wideGenerator()
	if err != nil {
		return nil, err
	}
	batch, err := wideGenerator()
	if err != nil {
		return nil, err
	}
	peer.NodeBits, peer.StepBits = 1, 21
	node, err := peer.NewNode(1)
	if err != nil {
		return nil, err
	}
	nothing := func() {}
	return []idSide{
		{atomicAdd, bareAdd(), nothing},
		{coatcheckNext, func(n int) error { return nextTimes(ctx, next, n) }, func() { next.Stop() }},
		{coatcheckBatch, func(n int) error { return fillTimes(ctx, batch, n) }, func() { batch.Stop() }},
		{bwmarrin, func(n int) error { return generateTimes(node, n) }, nothing},
	}, nil
}

func bareAdd() func(int) error {
	counter := new(struct { // on a cache line of its own
		_ [64]byte
		n atomic.Int64
		_ [56]byte
	})
	return func(n int) error {
		for range n {
			counter.n.Add(1)
		}
		return nil
	}
}

func nextTimes(ctx context.Context, g *snowflake.Generator, n int) error {
	for range n {
		if _, err := g.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func generateTimes(node *peer.Node, n int) error {
	for range n {
		node.Generate()
	}
	return nil
}

func fillTimes(ctx context.Context, g *snowflake.Generator, n int) error {
	var ids [256]snowflake.ID
	for ; n > 0; n -= len(ids) {
		if err := g.Fill(ctx, ids[:min(n, len(ids))]); err != nil {
			return err
		}
	}
	return nil
}

func wideGenerator() (*snowflake.Generator, error) {
	return snowflake.New(newRenewing(snowflake.MustLayout(wideLayout)), snowflake.Config{})
}

// renewing is a lease of 30 seconds that is renewed every ten, as a holder does it.
type renewing struct {
	start time.Time
	mu    sync.Mutex
	lease snowflake.Lease
}

func newRenewing(layout snowflake.Layout) *renewing {
	now := time.Now()
	return &renewing{start: now, lease: snowflake.Lease{Layout: layout, Epoch: snowflake.DefaultEpoch, Worker: 1, Fence: 1, NotBefore: now,
		NotAfter: now.Add(30 * time.Second), Time: now, At: now}}
}

func (r *renewing) Lease() (snowflake.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.lease.At) >= 10*time.Second {
		at := r.start.Add(now.Sub(r.start))
		r.lease.At, r.lease.Time, r.lease.NotAfter = now, at, at.Add(30*time.Second)
	}
	return r.lease, nil
}

// sustain draws as many ids as layout 41/10/12 has, and tells how many, and what they cost.
func sustain(ctx context.Context, result *table, side string, span time.Duration, draw func(n int) error) error {
	work, begun := processorTime(), time.Now()
	cost, err := costOf(ctx, draw, 1, span)
	used := (processorTime() - work) / float64(time.Since(begun).Microseconds())
	rate := 1e9 / cost
	result.add("at the limit", side, 1, rate, "ids/s", rate/twitterMax, "")
	result.add("processor", side, 1, used, "cores", "", "")
	return err
}

// sustainAll has generators draw at the limit: one that sleeps until there are more ids, and one
// that spins.
func sustainAll(ctx context.Context, result *table, span time.Duration) error {
	g, err := snowflake.New(newRenewing(snowflake.MustLayout(snowflake.DefaultLayout)), snowflake.Config{})
	if err != nil {
		return err
	}
	defer g.Stop()
	peer.NodeBits, peer.StepBits = 10, 12
	node, err := peer.NewNode(1)
	if err != nil {
		return err
	}
	if err := sustain(ctx, result, coatcheckNext, span, func(n int) error { return nextTimes(ctx, g, n) }); err != nil {
		return err
	}
	return sustain(ctx, result, bwmarrin, span/4, func(n int) error { return generateTimes(node, n) })
}

func pause(ctx context.Context, span time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(span):
		return nil
	}
}
