//go:build check

package counters

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// findings are what the files of all processes say.
type findings struct {
	files  int
	calls  int
	values int64
	during map[string]int64  // of them, by what was broken when they were told
	twice  chaostest.Finding // values that were told again
	// calls that were told a value no larger than one that was told before they began
	falling chaostest.Finding
}

// increment is what one call was told: the caller owns first to value. Times are those of moment.
type increment struct {
	counter                       counterID
	first, value, begun, returned int64
}

const incrementBytes = 5 * 8

// write appends to a file.
func write(file *os.File, one increment) {
	chaostest.WriteRecord(file, int64(one.counter), one.first, one.value, one.begun, one.returned)
}

// check reads the files of a folder.
func check(t testing.TB, folder string, stages chaostest.Stages) *findings {
	t.Helper()
	files := chaostest.ReadRecords(t, folder, 5, func(n []int64) increment { return increment{counterID(n[0]), n[1], n[2], n[3], n[4]} })
	byCounter := map[counterID][]increment{}
	for _, all := range files {
		for _, one := range all {
			byCounter[one.counter] = append(byCounter[one.counter], one)
		}
	}
	f := judge(byCounter, stages)
	f.files = len(files)
	return f
}

// judge looks at what was told of each counter.
func judge(byCounter map[counterID][]increment, stages chaostest.Stages) *findings {
	f := &findings{during: map[string]int64{}}
	for _, all := range byCounter {
		f.calls += len(all)
		for _, one := range all {
			f.values += one.value - one.first + 1
			f.during[stages.At(one.begun)] += one.value - one.first + 1
		}
		f.findTwice(all, stages)
		f.findFalling(all, stages)
	}
	return f
}

// findTwice goes through ranges by their first values. They are disjoint if none begins before all
// before it have ended.
func (f *findings) findTwice(all []increment, stages chaostest.Stages) {
	slices.SortFunc(all, func(a, b increment) int { return cmp.Compare(a.first, b.first) })
	var furthest increment
	for i, one := range all {
		if i > 0 && one.first <= furthest.value {
			again := min(one.value, furthest.value) - one.first + 1
			f.twice.Addf(again, stages.At(max(one.begun, furthest.begun)), "%v and %v", furthest, one)
		}
		if i == 0 || one.value > furthest.value {
			furthest = one
		}
	}
}

// findFalling finds calls that were told no more than one that had returned before they began.
func (f *findings) findFalling(all []increment, stages chaostest.Stages) {
	call := func(one increment) chaostest.Span { return chaostest.Span{From: one.begun, To: one.returned} }
	values := func(one increment) (least, most int64) { return one.first, one.value }
	chaostest.Falling(all, call, values, func(before, one increment) {
		f.falling.Addf(1, stages.At(one.begun), "%v, then %v", before, one)
	})
}

// rows are what was found during each kind of fault, of all stages.
func (f *findings) rows(role, layer string, stages chaostest.Stages) []evidence.Row {
	who := map[string]string{"ours": evidence.Ours, "plain": "`INCR` by go-redis"}[role]
	wrong := map[string]int64{}
	for during := range f.during {
		wrong[during] = f.falling.During[during] + f.twice.During[during]
	}
	row := evidence.Row{Suite: "counters", Promise: evidence.Counters, Who: who, Peer: role == "plain", Layer: layer}
	return stages.Rows(row, f.during, wrong)
}

// String implements fmt.Stringer.
func (o increment) String() string {
	return fmt.Sprintf("%v %d–%d [%.3fs, %.3fs]", o.counter, o.first, o.value, float64(o.begun)/1e9, float64(o.returned)/1e9)
}

// String implements fmt.Stringer.
func (f *findings) String() string {
	return fmt.Sprintf("%d values in %d calls of %d processes\n%s%s", f.values, f.calls, f.files, f.twice.Report("twice"), f.falling.Report("falling"))
}
