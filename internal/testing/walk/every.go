//go:build steps

package walk

// option is what a run can do next. It preempts if the goroutine that ran last could go on, or if
// time passes although one could.
type option struct{ preempts bool }

// every chooses so that each run differs from those before.
type every struct {
	made   []made
	depth  int
	budget int // of preemptions; 0 = none
	uneven int // runs that went another way than the one before, by the same choices
}

type made struct {
	options []option
	chosen  int
}

func (e *every) choose(options []option) int {
	if e.depth == len(e.made) {
		e.made = append(e.made, made{options, 0})
	}
	m := e.made[e.depth]
	e.depth++
	if len(m.options) != len(options) { // a select had two ways to go on, and took the other one
		e.uneven++
		e.made = append(e.made[:e.depth-1], made{options, 0})
		return 0
	}
	return m.chosen
}

// another makes the last choice that has another outcome differently. It reports whether one has.
func (e *every) another() bool {
	for len(e.made) > 0 {
		last := &e.made[len(e.made)-1]
		if last.chosen++; last.chosen < len(last.options) && e.affordable() {
			return true
		}
		if last.chosen >= len(last.options) {
			e.made = e.made[:len(e.made)-1]
		}
	}
	return false
}

func (e *every) affordable() bool {
	if e.budget == 0 {
		return true
	}
	spent := 0
	for _, m := range e.made {
		if m.options[m.chosen].preempts {
			spent++
		}
	}
	return spent <= e.budget
}
