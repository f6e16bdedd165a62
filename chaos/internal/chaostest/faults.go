package chaostest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

// Fault is a kind of thing that breaks in an F, and is made whole again.
type Fault[F any] struct {
	Name   string
	Strike func(F)
	Long   bool // it is left out of a run beside other tests

	Failovers int64 // that it makes, or AnyFailovers
}

// AnyFailovers is for a fault by which the sentinels may replace a master.
const AnyFailovers = -1

// Chosen are the faults that the flags ask for.
func Chosen[F any](t testing.TB, faults []Fault[F]) []Fault[F] {
	t.Helper()
	wanted, all := Wanted(t), !Short() || *Faults != ""
	return slices.DeleteFunc(slices.Clone(faults), func(one Fault[F]) bool { return !wanted(one.Name) || one.Long && !all })
}

// Named are the faults of these names.
func Named[F any](faults []Fault[F], names ...string) []Fault[F] {
	return slices.DeleteFunc(slices.Clone(faults), func(one Fault[F]) bool { return !slices.Contains(names, one.Name) })
}

// EachRound has every fault strike in each round, in an order that is drawn by lot.
func EachRound[F any](t testing.TB, lot *rand.Rand, faults []Fault[F], strike func(Fault[F])) {
	t.Helper()
	for round := range *Rounds {
		for _, i := range lot.Perm(len(faults)) {
			t.Logf("round %d: %s", round+1, faults[i].Name)
			strike(faults[i])
		}
	}
}

// Short reports whether this is a run beside other tests, in which all have to be short.
func Short() bool { return *Rounds == 1 && !Proving() }

// Stage is what is broken from a moment on, by the clock of what the processes write.
type Stage struct {
	From int64
	Name string
}

// Stages are those of a run, in their order.
type Stages []Stage

// At tells what was broken at a moment.
func (s Stages) At(moment int64) string {
	for _, one := range slices.Backward(s) {
		if moment >= one.From {
			return one.Name
		}
	}
	return "the start"
}

// Rows are copies of a row for each kind of fault, with what was done during it, and what was wrong
// of that.
func (s Stages) Rows(row evidence.Row, operations, violations map[string]int64) (rows []evidence.Row) {
	struck := map[string]int64{}
	for _, one := range s {
		struck[one.Name]++
	}
	for _, name := range slices.Sorted(maps.Keys(struck)) {
		row.Fault, row.Faults, row.Operations, row.Violations = name, struck[name], operations[name], violations[name]
		rows = append(rows, row)
	}
	return rows
}

// Beside lets a test run beside others in a run beside other tests; at length each has the machine
// to itself, unless what is counted is written down.
func Beside(t *testing.T) {
	t.Helper()
	if *Rounds == 1 || Proving() {
		t.Parallel()
	}
}
