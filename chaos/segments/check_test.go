//go:build check

package segments

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// findings are what the files of all processes say.
type findings struct {
	processes, ids, ranges int

	twice   chaostest.Finding // ids that were told again
	strange chaostest.Finding // ids of no range that the process was given
	skipped chaostest.Finding // ids that were not told, of ranges that the process was done with
	ahead   int64             // the most ids of a tag that a process left behind
	gaps    int               // the most gaps of a tag between ranges that were given
}

// history is what one process wrote down.
type history struct {
	name    string
	killed  bool
	records []record
}

// record is what a process writes down: a range that it was given, or, with hi 0, the id lo that a
// client was told.
type record struct{ tag, lo, hi, delta int64 }

const recordBytes = 4 * 8

// write appends to a file.
func write(file *os.File, one record) {
	chaostest.WriteRecord(file, one.tag, one.lo, one.hi, one.delta)
}

// check reads the files of a folder. finished are the processes that have ended in order.
func check(t testing.TB, folder string, finished map[string]bool) *findings {
	t.Helper()
	var all []history
	for name, records := range chaostest.ReadRecords(t, folder, 4, func(n []int64) record { return record{n[0], n[1], n[2], n[3]} }) {
		all = append(all, history{name, !finished[name], records})
	}
	return judge(all)
}

func judge(all []history) *findings {
	f := &findings{processes: len(all)}
	byTag, given := map[int64][]issued{}, map[int64][]record{}
	for _, one := range all {
		for tag, mine := range one.byTag() {
			f.ids += len(mine.ids)
			f.ranges += len(mine.ranges)
			given[tag] = append(given[tag], mine.ranges...)
			f.findLeft(fmt.Sprintf("%s, tag %d", one.name, tag), one.killed, mine)
			for _, id := range mine.ids {
				byTag[tag] = append(byTag[tag], issued{id, one.name})
			}
		}
	}
	for tag, ids := range byTag {
		chaostest.Twice(ids, func(one issued) int64 { return one.id }, func(before, again issued) {
			f.twice.Addf(1, "", "%d of tag %d by %s and %s", again.id, tag, before.by, again.by)
		})
		f.gaps = max(f.gaps, gaps(given[tag]))
	}
	return f
}

// gaps counts those between the ranges of a tag.
func gaps(all []record) (n int) {
	slices.SortFunc(all, func(a, b record) int { return cmp.Compare(a.lo, b.lo) })
	furthest := int64(1) // where all begin
	for _, one := range all {
		if one.lo > furthest {
			n++
		}
		furthest = max(furthest, one.hi)
	}
	return n
}

// issued is an id, and the process that drew it.
type issued struct {
	id int64
	by string
}

// part is what a process wrote down of one tag, in its order.
type part struct {
	ranges []record
	ids    []int64
}

func (h history) byTag() map[int64]*part {
	parts := map[int64]*part{}
	for _, one := range h.records {
		if parts[one.tag] == nil {
			parts[one.tag] = &part{}
		}
		mine := parts[one.tag]
		if one.hi > 0 {
			mine.ranges = append(mine.ranges, one)
		} else {
			mine.ids = append(mine.ids, one.lo)
		}
	}
	return parts
}

// findLeft counts what was told of each range that a process was given. It is done with all before
// the last one that it told an id of. How many it has after that one follows its demand.
func (f *findings) findLeft(who string, killed bool, mine *part) {
	left := make([]int64, len(mine.ranges))
	for i, one := range mine.ranges {
		left[i] = (one.hi-one.lo-1)/one.delta + 1
	}
	last, done := 0, 0
	for _, id := range mine.ids {
		in := func(one record) bool { return id >= one.lo && id < one.hi && (id-one.lo)%one.delta == 0 }
		if len(left) == 0 || !in(mine.ranges[last]) {
			if last = slices.IndexFunc(mine.ranges, in); last < 0 {
				f.strange.Addf(1, "", "%d by %s", id, who)
				last = 0
				continue
			}
		}
		left[last]--
		done = max(done, last)
	}
	skipped := sum(left[:done])
	if killed {
		skipped -= clients // each may have had one that it had not written down
	}
	if skipped > 0 {
		f.skipped.Addf(skipped, "", "%d by %s: %d", skipped, who, left)
	}
	f.ahead = max(f.ahead, sum(left[done:]))
}

func sum(all []int64) (n int64) {
	for _, one := range all {
		n += one
	}
	return n
}

// wrong is how much was found.
func (f *findings) wrong() int64 { return f.twice.N + f.strange.N + f.skipped.N }

// String implements fmt.Stringer.
func (f *findings) String() string {
	return fmt.Sprintf("%d ids of %d ranges, told by %d processes: %d twice, %d of no range, %d skipped; at most %d left behind; %d gaps",
		f.ids, f.ranges, f.processes, f.twice.N, f.strange.N, f.skipped.N, f.ahead, f.gaps)
}

// report has samples of all that was found.
func (f *findings) report() string {
	return f.twice.Report("twice") + f.strange.Report("of no range") + f.skipped.Report("skipped")
}
