package segment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// How to read this: the ratios of BenchmarkAgainstAtomicAdd come from rounds that take turns with the bare addition, so that a busy machine is busy for both. The other benchmarks
// are for profiles.

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
	step = orDefault(step, e.step)
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

func bareLoop(p *padded, n int) {
	for range n {
		p.n.Add(1)
	}
}

// called is a bare addition behind a call, which no draw can do without: it is too large to be inlined.
//
//go:noinline
func (p *padded) called() int64 { return p.n.Add(1) }

func calledLoop(p *padded, n int) {
	for range n {
		p.called()
	}
}

func nextLoop(ctx context.Context, b *testing.B, tag *Tag, n int) {
	for range n {
		if _, err := tag.Next(ctx); err != nil {
			b.Error(err)
		}
	}
}

func batchLoop(ctx context.Context, b *testing.B, tag *Tag, ids []int64, n int) {
	for range n / len(ids) {
		if err := tag.NextN(ctx, ids); err != nil {
			b.Error(err)
		}
	}
}

// One operation is a round of all. The metrics are medians over the rounds, from each starting step: the time of Next divided by that of a bare addition, which the compiler puts into the
// loop (inlined) or which is called (called), by one goroutine (x1) and by two at once (x2), and the time of an id in a batch of 256.
func BenchmarkAgainstAtomicAdd(b *testing.B) {
	const n = 20_480
	for _, step := range benchSteps {
		b.Run(fmt.Sprint("step=", step), func(b *testing.B) {
			ctx, bare, ids := b.Context(), new(padded), make([]int64, 256)
			_, tag := benchTag(b, step)
			times := map[string][]float64{}
			note := func(name string, work func()) {
				start := time.Now()
				work()
				times[name] = append(times[name], float64(time.Since(start)))
			}
			for b.Loop() {
				note("inlined", func() { bareLoop(bare, n) })
				note("next", func() { nextLoop(ctx, b, tag, n) })
				note("called", func() { calledLoop(bare, n) })
				note("batch", func() { batchLoop(ctx, b, tag, ids, n) })
				note("inlined2", func() { both(func() { bareLoop(bare, n) }) })
				note("next2", func() { both(func() { nextLoop(ctx, b, tag, n) }) })
				note("called2", func() { both(func() { calledLoop(bare, n) }) })
			}
			next, next2 := median(times["next"]), median(times["next2"])
			b.ReportMetric(next/median(times["inlined"]), "x1-inlined")
			b.ReportMetric(next/median(times["called"]), "x1-called")
			b.ReportMetric(next2/median(times["inlined2"]), "x2-inlined")
			b.ReportMetric(next2/median(times["called2"]), "x2-called")
			b.ReportMetric(median(times["batch"])/n, "ns/batched-id")
		})
	}
}

// both runs work twice at once.
func both(work func()) {
	var all sync.WaitGroup
	all.Go(work)
	all.Go(work)
	all.Wait()
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func BenchmarkAtomicAdd(b *testing.B) {
	bare := new(padded)
	for b.Loop() {
		bare.n.Add(1)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, step := range benchSteps {
		b.Run(fmt.Sprint("step=", step), func(b *testing.B) {
			ctx := b.Context()
			_, tag := benchTag(b, step)
			for b.Loop() {
				if _, err := tag.Next(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAtomicAddParallel(b *testing.B) {
	bare := new(padded)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			bare.n.Add(1)
		}
	})
}

func BenchmarkNextParallel(b *testing.B) {
	for _, step := range benchSteps {
		b.Run(fmt.Sprint("step=", step), func(b *testing.B) {
			ctx := b.Context()
			_, tag := benchTag(b, step)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := tag.Next(ctx); err != nil {
						b.Error(err)
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
		if err := tag.NextN(ctx, ids); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNextByName(b *testing.B) {
	ctx := b.Context()
	s, _ := benchTag(b, 2000)
	for b.Loop() {
		if _, err := s.Next(ctx, "orders"); err != nil {
			b.Fatal(err)
		}
	}
}
