//go:build check

package locks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// never is when something returns that does not.
const never = math.MaxInt64

// deed is one operation of a lock's history: a grant, or the end of one.
type deed struct {
	client  int // a number below 64 within the history
	end     bool
	shared  bool
	permits int
	fence   int64
	rank    int // of a grant: its fence is the rank-th smallest of the history
}

func (d deed) String() string {
	what := "granted"
	if d.end {
		what = "ended"
	}
	return fmt.Sprintf("%s to %d: shared %v, %d permits, fence %d", what, d.client, d.shared, d.permits, d.fence)
}

// state is a lock's: who has it, what of it, and the rank of the newest fence.
type state struct {
	holders uint64 // a bit for each client
	shared  bool
	used    int // permits
	rank    int
}

// capacity is how many permits a lock with permits has.
const capacity = 3

// The models. All have states that compare by ==.
var (
	// mutexModel knows owners and nothing of fences.
	mutexModel = model(func(s state, d deed) bool { return s.holders == 0 })
	// fencedModel has fences rise as well. All grants of a history have to be put in an order, so
	// rising fences mean that each rank follows the one before it; that says the same and leaves
	// porcupine nothing to try out.
	fencedModel = model(func(s state, d deed) bool { return s.holders == 0 && d.rank == s.rank+1 })
	// sharedModel lets readers in together.
	sharedModel = model(func(s state, d deed) bool { return (s.holders == 0 || s.shared && d.shared) && d.rank == s.rank+1 })
	// permitsModel lets in as many as there are permits.
	permitsModel = model(func(s state, d deed) bool { return s.used+d.permits <= capacity && d.rank == s.rank+1 })
)

// model is that of a lock which is granted if may says so, and ended by those who have it.
func model(may func(state, deed) bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(before, input, _ any) (bool, any) {
			s, d := before.(state), input.(deed)
			bit := uint64(1) << d.client
			if d.end {
				possible := s.holders&bit != 0
				s.holders &^= bit
				s.used -= d.permits
				return possible, s
			}
			possible := may(s, d) && s.holders&bit == 0
			s.holders |= bit
			s.shared = d.shared
			s.used += d.permits
			s.rank = d.rank
			return possible, s
		},
		DescribeOperation: func(input, _ any) string { return input.(deed).String() },
	}
}

// ranked gives the grants of a history their ranks. Equal fences have equal ranks, and so no
// explanation.
func ranked(history []porcupine.Operation) []porcupine.Operation {
	var fences []int64
	for _, operation := range history {
		if d := operation.Input.(deed); !d.end {
			fences = append(fences, d.fence)
		}
	}
	slices.Sort(fences)
	fences = slices.Compact(fences)
	for i, operation := range history {
		d := operation.Input.(deed)
		if at, found := slices.BinarySearch(fences, d.fence); found && !d.end {
			d.rank = at + 1
			history[i].Input = d
		}
	}
	return history
}

// explained reports whether a model explains a history. It takes what could not be decided for
// unexplained.
func explained(model porcupine.Model, history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, ranked(history), time.Minute)
}

// stuck says how far an explanation of a history gets at most: the last operations that have a
// place in it, and the one that should have had one by then.
func stuck(model porcupine.Model, history []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, ranked(history), time.Minute)
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	placed := map[porcupine.Operation]bool{}
	for _, operation := range longest {
		placed[operation] = true
	}
	var text strings.Builder
	for _, operation := range longest[max(0, len(longest)-12):] {
		fmt.Fprintf(&text, "\n%s", describe(operation))
	}
	rest := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool { return placed[o] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	fmt.Fprint(&text, "\nand then there is no place for")
	for _, operation := range rest[:min(6, len(rest))] {
		fmt.Fprintf(&text, "\n%s", describe(operation))
	}
	return text.String()
}

func describe(o porcupine.Operation) string {
	back := "never"
	if o.Return != never {
		back = time.Unix(0, o.Return).Format("05.000000")
	}
	return fmt.Sprintf("%s–%s  %v", time.Unix(0, o.Call).Format("05.000000"), back, o.Input)
}
