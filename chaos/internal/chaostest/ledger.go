package chaostest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Finding counts one kind of wrong, by what was broken at the time, and keeps the first few. The
// zero value has found nothing.
type Finding struct {
	N      int64
	During map[string]int64 // of N, by the stage; "" where that is not known

	samples []string
}

// Addf counts n, with a text for the first few times.
func (f *Finding) Addf(n int64, during, format string, args ...any) {
	if f.During == nil {
		f.During = map[string]int64{}
	}
	f.N += n
	f.During[during] += n
	if len(f.samples) < 10 {
		f.samples = append(f.samples, "\n  "+fmt.Sprintf(format, args...))
	}
}

// Report is what was counted, during which stages, and the samples, for the failure of a test.
func (f *Finding) Report(what string) (text string) {
	text = fmt.Sprintf("%s: %d", what, f.N)
	for _, during := range slices.Sorted(maps.Keys(f.During)) {
		text += fmt.Sprintf("\n    %d during: %s", f.During[during], during)
	}
	for _, sample := range f.samples {
		text += sample
	}
	return text + "\n"
}

// Twice finds what is there more than once by its value, each with the one before it. It sorts
// them.
func Twice[T any, V cmp.Ordered](all []T, value func(T) V, found func(before, again T)) {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(value(a), value(b)) })
	for i := 1; i < len(all); i++ {
		if value(all[i]) == value(all[i-1]) {
			found(all[i-1], all[i])
		}
	}
}

// Itself is the value of what is one.
func Itself[V cmp.Ordered](v V) V { return v }

// Span is when something began and ended, by one clock.
type Span struct{ From, To int64 }

// Overlaps finds what began before another one had ended that began before it: each with the one of
// these that ends last. It sorts them by when they began.
func Overlaps[T any](all []T, span func(T) Span, found func(before, one T)) {
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(span(a).From, span(b).From) })
	for i, furthest := 0, 0; i < len(all); i++ {
		if i > 0 && span(all[i]).From < span(all[furthest]).To {
			found(all[furthest], all[i])
		}
		if span(all[i]).To > span(all[furthest]).To {
			furthest = i
		}
	}
}

// Falling finds calls that were told a value no larger than one that another call had been told
// before they began, each with the call that was told the largest by then. It sorts them by when
// they began. A call is told the values from least to most.
func Falling[T any](all []T, call func(T) Span, values func(T) (least, most int64), found func(before, one T)) {
	byReturn := slices.Clone(all)
	slices.SortFunc(byReturn, func(a, b T) int { return cmp.Compare(call(a).To, call(b).To) })
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(call(a).From, call(b).From) })
	// how many calls of byReturn had returned, and which of them was told most
	returned, largest := 0, 0
	for _, one := range all {
		// one itself is not among them
		for ; call(byReturn[returned]).To < call(one).From; returned++ {
			_, most := values(byReturn[returned])
			if _, before := values(byReturn[largest]); most > before {
				largest = returned
			}
		}
		if returned == 0 {
			continue
		}
		least, _ := values(one)
		if _, most := values(byReturn[largest]); least <= most {
			found(byReturn[largest], one)
		}
	}
}
