package segment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// How to read this: the ratios of BenchmarkAgainstAtomicAdd come from rounds that take turns with
// the bare addition, so that a busy machine is busy for both. The other benchmarks are for
// profiles.

// padded is a counter on a cache line of its own, as a node's is.
type padded struct {
	_ [64]byte
	n atomic.Int64
	_ [56]byte
}

// endless is a source in memory, with a row's step.
type endless struct {
	next atomic.Int64
	step int64
}

func (e *endless) Take(_ context.Context, _ string, step int64) (Range, error) {
	step = cmp.Or(step, e.step)
	hi := e.next.Add(step)
	return Range{Lo: hi - step, Hi: hi, Step: e.step}, nil
}

var benchSteps = []int64{1, 2000, DefaultMaxStep}

func benchTag(b *testing.B, step int64) (*Segments, *Tag) {
	b.Helper()
	s := open(b, &endless{step: step}, Config{})
	b.ReportAllocs()
	return s, handle(b, s, "orders")
}

// called is a bare addition in a function call.
//
//go:noinline
func (p *padded) called() int64 { return p.n.Add(1) }

// What the loops do with an id is a part of what they cost: one that writes anything to memory
// waits for that at the next addition. So each of these is compared with a bare loop of its own
// kind.
var benchLoops = map[string]struct {
	bare, called, next func(p *padded, tag *Tag, ids []int64)
}{
	"kept": { // as by callers that use ids
		bare: func(p *padded, _ *Tag, ids []int64) {
			for i := range ids {
				ids[i] = p.n.Add(1)
			}
		},
		called: func(p *padded, _ *Tag, ids []int64) {
			for i := range ids {
				ids[i] = p.called()
			}
		},
		next: func(_ *padded, tag *Tag, ids []int64) {
			ctx := context.Background()
			for i := range ids {
				id, err := tag.Next(ctx)
				if err != nil {
					panic(err)
				}
				ids[i] = id
			}
		},
	},
	"dropped": { // the loop is in registers, but for what is kept for a call
		bare: func(p *padded, _ *Tag, ids []int64) {
			for range ids {
				p.n.Add(1)
			}
		},
		called: func(p *padded, _ *Tag, ids []int64) {
			for range ids {
				p.called()
			}
		},
		next: func(_ *padded, tag *Tag, ids []int64) {
			ctx := context.Background()
			for range ids {
				if _, err := tag.Next(ctx); err != nil {
					panic(err)
				}
			}
		},
	},
}

// One operation is a round of all. The metrics are medians over the rounds, from each starting
// step: the time of Next divided by that of a bare addition, which the compiler puts into the loop
// (inlined) or which is called (called), by one goroutine (x1) and by two at once (x2), and the
// time of an id in a batch of 256.
func BenchmarkAgainstAtomicAdd(b *testing.B) {
	const n = 40_960
	for kind, loops := range benchLoops {
		for _, step := range benchSteps {
			b.Run(fmt.Sprint(kind, "/step=", step), func(b *testing.B) {
				bare, one, two := new(padded), make([]int64, n), make([]int64, n)
				_, tag := benchTag(b, step)
				times := map[string][]float64{}
				note := func(name string, work func()) {
					start := time.Now()
					work()
					times[name] = append(times[name], float64(time.Since(start)))
				}
				for b.Loop() {
					for name, loop := range map[string]func(*padded, *Tag, []int64){"inlined": loops.bare, "called": loops.called, "next": loops.next} {
						note(name+"1", func() { loop(bare, tag, one) })
						note(name+"2", func() { both(func() { loop(bare, tag, one) }, func() { loop(bare, tag, two) }) })
					}
					note("batch", func() { batchLoop(b, tag, one) })
				}
				for _, at := range []string{"1", "2"} {
					next := median(times["next"+at])
					b.ReportMetric(next/median(times["inlined"+at]), "x"+at+"-inlined")
					b.ReportMetric(next/median(times["called"+at]), "x"+at+"-called")
				}
				b.ReportMetric(median(times["batch"])/n, "ns/batched-id")
			})
		}
	}
}

func batchLoop(b *testing.B, tag *Tag, ids []int64) {
	for batch := range slices.Chunk(ids, 256) {
		if err := tag.Fill(b.Context(), batch); err != nil {
			b.Errorf("NextN: got error %v, want none", err)
		}
	}
}

// both runs two things at once.
func both(one, other func()) {
	var all sync.WaitGroup
	var begun atomic.Int32
	for _, work := range []func(){one, other} {
		all.Go(func() {
			for here := begun.Add(1); here < 2; here = begun.Load() {
				continue // it keeps its processor: the other one takes another
			}
			work()
		})
	}
	all.Wait()
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func BenchmarkNext(b *testing.B) {
	for _, step := range benchSteps {
		b.Run(fmt.Sprint("step=", step), func(b *testing.B) {
			ctx := b.Context()
			_, tag := benchTag(b, step)
			for b.Loop() {
				if _, err := tag.Next(ctx); err != nil {
					b.Fatalf("Next: got error %v, want none", err)
				}
			}
		})
	}
}

func BenchmarkNextParallel(b *testing.B) {
	for _, step := range benchSteps {
		b.Run(fmt.Sprint("step=", step), func(b *testing.B) {
			ctx := b.Context()
			_, tag := benchTag(b, step)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := tag.Next(ctx); err != nil {
						b.Errorf("Next: got error %v, want none", err)
					}
				}
			})
		})
	}
}

// One operation is a batch of 256.
func BenchmarkNextN(b *testing.B) {
	ctx, ids := b.Context(), make([]int64, 256)
	_, tag := benchTag(b, 2000)
	for b.Loop() {
		if err := tag.Fill(ctx, ids); err != nil {
			b.Fatalf("NextN: got error %v, want none", err)
		}
	}
}

func BenchmarkNextByName(b *testing.B) {
	ctx := b.Context()
	s, _ := benchTag(b, 2000)
	for b.Loop() {
		if _, err := s.Next(ctx, "orders"); err != nil {
			b.Fatalf("Next orders: got error %v, want none", err)
		}
	}
}
