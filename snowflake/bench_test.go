package snowflake_test

import (
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/snowflake"
)

// wide is a layout whose sequence is not the limit: 2,097,152 ids in a millisecond.
const wide = "41/1/21"

func static(b *testing.B, text string) *snowflake.Generator {
	b.Helper()
	worker, err := snowflake.Static(snowflake.MustLayout(text), snowflake.DefaultEpoch, 0, 1)
	if err != nil {
		b.Fatalf("snowflake.Static: got error %v, want none", err)
	}
	g, err := snowflake.New(worker, snowflake.Config{})
	if err != nil {
		b.Fatalf("snowflake.New: got error %v, want none", err)
	}
	b.Cleanup(func() { g.Stop() })
	b.ReportAllocs()
	return g
}

// padded is a counter on a cache line of its own, as the generator's is.
type padded struct {
	_ [64]byte
	n atomic.Int64
	_ [56]byte
}

func BenchmarkAtomicAdd(b *testing.B) {
	bare := new(padded)
	for b.Loop() {
		bare.n.Add(1)
	}
}

func BenchmarkNext(b *testing.B) {
	g := static(b, wide)
	ctx := b.Context()
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatalf("Next: got error %v, want none", err)
		}
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
	g := static(b, wide)
	ctx := b.Context()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(ctx); err != nil {
				b.Errorf("Next: got error %v, want none", err)
			}
		}
	})
}

// One operation is one id.
func BenchmarkFill(b *testing.B) {
	g := static(b, wide)
	ctx := b.Context()
	ids := make([]snowflake.ID, 256)
	for done := 0; done < b.N; done += len(ids) {
		if err := g.Fill(ctx, ids); err != nil {
			b.Fatalf("Fill: got error %v, want none", err)
		}
	}
}

// A layout whose sequence is the limit: 4,096 ids in a millisecond are 244 ns for each.
func BenchmarkNextOfTwitterLayout(b *testing.B) {
	g := static(b, snowflake.DefaultLayout)
	ctx := b.Context()
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatalf("Next: got error %v, want none", err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, format := range snowflake.Formats() {
		b.Run(string(format), func(b *testing.B) {
			b.ReportAllocs()
			buffer := make([]byte, 0, 64)
			for b.Loop() {
				buffer, _ = format.Append(buffer[:0], 1169786042799259000, snowflake.Style{})
			}
		})
	}
}
