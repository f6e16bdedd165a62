//go:build check

package segments

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What is put in, is found, and nothing else.
func TestCheckFindsWhatIsPutIn(t *testing.T) {
	given := func(lo, hi, delta int64) record { return record{1, lo, hi, delta} }
	run := func(lo, hi, delta int64) (ids []record) {
		for id := lo; id < hi; id += delta {
			ids = append(ids, record{tag: 1, lo: id})
		}
		return ids
	}
	whole := append([]record{given(1, 11, 1), given(11, 21, 1), given(21, 31, 1)}, run(1, 12, 1)...)
	for _, row := range []struct {
		name                    string
		all                     []history
		twice, strange, skipped int64
	}{
		{"nothing", nil, 0, 0, 0},
		{"all that is to be told", []history{{"a", false, whole}}, 0, 0, 0},
		{"by two", []history{{"a", false, whole}, {"b", false, append([]record{given(31, 41, 1)}, run(31, 35, 1)...)}}, 0, 0, 0},
		{"another tag", []history{{"a", false, whole}, {"b", false, []record{{2, 1, 11, 1}, {tag: 2, lo: 5}}}}, 0, 0, 0},
		{"twice by one", []history{{"a", false, append(whole, record{tag: 1, lo: 11})}}, 1, 0, 0},
		{"twice by two", []history{{"a", false, whole}, {"b", false, append([]record{given(10, 20, 1)}, run(10, 14, 1)...)}}, 2, 0, 0},
		{"of no range", []history{{"a", false, append(whole, record{tag: 1, lo: 31})}}, 0, 1, 0},
		{"between the ids of a stripe", []history{{"a", false, []record{given(2, 30, 3), {tag: 1, lo: 5}, {tag: 1, lo: 6}}}}, 0, 1, 0},
		{"stripes that interleave", []history{{"a", false, append([]record{given(2, 30, 3), given(3, 30, 3), given(31, 40, 3)}, run(2, 30, 3)...)}}, 0, 0, 0},
		{"skipped", []history{{"a", false, append([]record{given(1, 11, 1), given(11, 21, 1), given(21, 31, 1)}, append(run(1, 10, 1), run(11, 12, 1)...)...)}}, 0, 0, 1},
		{"three fetched ahead", []history{{"a", true, append([]record{given(1, 51, 1), given(51, 101, 1), given(101, 151, 1)}, run(1, 10, 1)...)}}, 0, 0, 0},
		{"not written down, when it was killed", []history{{"a", true, append([]record{given(1, 11, 1), given(11, 21, 1), given(21, 31, 1)}, append(run(1, 11-clients, 1), run(11, 12, 1)...)...)}}, 0, 0, 0},
		{"skipped, when it was killed", []history{{"a", true, append([]record{given(1, 11, 1), given(11, 21, 1), given(21, 31, 1)}, append(run(1, 10-clients, 1), run(11, 12, 1)...)...)}}, 0, 0, 1},
	} {
		found := judge(row.all)
		if found.twice.N != row.twice || found.strange.N != row.strange || found.skipped.N != row.skipped {
			t.Errorf("%s: %v, want %d, %d, %d", row.name, found, row.twice, row.strange, row.skipped)
		}
	}
}

func TestCheckCountsGaps(t *testing.T) {
	given := func(lo, hi int64) record { return record{1, lo, hi, 1} }
	for want, all := range [][]record{
		{given(11, 21), given(1, 11)},
		{given(11, 21)},
		{given(2, 11), given(61, 71), given(21, 31), given(11, 21), given(31, 60)},
	} {
		expect.Equal(t, fmt.Sprintf("gaps of %v", all), gaps(all), want)
	}
}
