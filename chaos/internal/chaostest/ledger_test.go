package chaostest

import (
	"fmt"
	"slices"
	"testing"
)

// What is put in, is found, and nothing else. The suites put in what is theirs.
func TestLedgersFindWhatIsPutIn(t *testing.T) {
	type value struct{ least, most, from, to int64 }
	span := func(one value) Span { return Span{one.from, one.to} }
	values := func(one value) (least, most int64) { return one.least, one.most }
	for name, row := range map[string]struct {
		all                      []value
		twice, overlaps, falling []string // the one before and the one found, by the least of each
	}{
		"in order":                     {[]value{{1, 1, 0, 10}, {2, 5, 11, 20}, {6, 6, 21, 30}}, nil, nil, nil},
		"at once, the later one first": {[]value{{2, 2, 0, 20}, {1, 1, 10, 30}}, nil, []string{"2 1"}, nil},
		"twice, one after the other":   {[]value{{5, 5, 0, 10}, {5, 5, 11, 20}}, []string{"5 5"}, nil, []string{"5 5"}},
		"inside a longer one":          {[]value{{1, 1, 0, 30}, {2, 2, 5, 10}, {3, 3, 20, 25}}, nil, []string{"1 2", "1 3"}, nil},
		"less than the most of before": {[]value{{9, 9, 0, 5}, {2, 2, 1, 6}, {3, 3, 7, 8}}, nil, []string{"9 2"}, []string{"9 3"}},
		"begins as one ends":           {[]value{{1, 1, 0, 10}, {2, 2, 10, 20}}, nil, nil, nil},
	} {
		var twice, overlaps, falling []string
		into := func(found *[]string) func(before, one value) {
			return func(before, one value) { *found = append(*found, fmt.Sprint(before.least, " ", one.least)) }
		}
		Twice(slices.Clone(row.all), func(one value) int64 { return one.least }, into(&twice))
		Overlaps(slices.Clone(row.all), span, into(&overlaps))
		Falling(slices.Clone(row.all), span, values, into(&falling))
		if !slices.Equal(twice, row.twice) || !slices.Equal(overlaps, row.overlaps) || !slices.Equal(falling, row.falling) {
			t.Errorf("%s: got twice %q, overlaps %q, falling %q, want %q, %q, %q", name, twice, overlaps, falling, row.twice, row.overlaps, row.falling)
		}
	}
}
