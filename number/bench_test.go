package number_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/number"
)

func BenchmarkTemplateAppend(b *testing.B) {
	template := number.MustTemplate("ORD-{yyyyMMdd}-{n:6}")
	at := time.Now().In(zone(b, "Europe/Berlin"))
	buffer := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buffer, err = template.Append(buffer[:0], 42, at); err != nil {
			b.Fatalf("writing 42: %v", err)
		}
	}
}

func BenchmarkCalendarKeyAt(b *testing.B) {
	k := key(b, "orders:{yyyyMMdd}", zone(b, "Europe/Berlin"))
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := k.At(at); err != nil {
			b.Fatalf("the key at %v: %v", at, err)
		}
	}
}

func BenchmarkOpaqueAppend(b *testing.B) {
	o := opaque(b, 0, "orders")
	buffer := make([]byte, 0, 64)
	value := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		value++
		var err error
		if buffer, err = o.Append(buffer[:0], value); err != nil {
			b.Fatalf("writing %d: %v", value, err)
		}
	}
}

func BenchmarkOpaqueAppendParallel(b *testing.B) {
	o := opaque(b, 0, "orders")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		buffer := make([]byte, 0, 64)
		for pb.Next() {
			buffer, _ = o.Append(buffer[:0], 42)
		}
	})
}

func BenchmarkOpaqueDecode(b *testing.B) {
	o := opaque(b, 0, "orders")
	text, err := o.Encode(42)
	expect.MustEqual(b, "the error of writing 42", err, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Decode(text); err != nil {
			b.Fatalf("reading %s: %v", text, err)
		}
	}
}
