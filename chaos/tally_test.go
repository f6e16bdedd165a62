//go:build check

package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

// fate counts what became of orders.
type fate struct {
	orders   int
	answers  int // the last client got the handler's answer
	doubts   int // … or heard that it is not known
	unstarts int // of these: the handler had never begun
	lost     int // … or that the token is unknown
	reruns   int // the handler began more than once
	gone     int // a client had been given the answer, and the last one heard "not known"
	late     int // a client heard "not known", and a later one got the answer
	others   int // clients were given two answers of the handler
}

// tally counts what was broken where, and what became of it.
type tally struct {
	faults, operations, requests, unanswered int
	// rounds in which the sentinels failed over by themselves, and violations in them
	void, voidBroken int
	broken           map[rule]int
	struck           map[string]int64    // rounds that are not void, by kind of fault
	wrong            map[string][2]int64 // violations in them, under hold and takeover

	byKind  map[string]*[2]fate // under hold, under takeover; of all orders
	byPlace map[position]*[2]fate
	kinds   []string // in the order in which they came
}

func (l *tally) add(s *scene, found []violation) {
	if l.byKind == nil {
		l.byKind, l.byPlace, l.broken = map[string]*[2]fate{}, map[position]*[2]fate{}, map[rule]int{}
		for at := range positions {
			l.byPlace[at] = &[2]fate{}
		}
	}
	if l.byKind[s.fault.name] == nil {
		l.byKind[s.fault.name] = &[2]fate{}
		l.kinds = append(l.kinds, s.fault.name)
	}
	l.faults++
	l.judged(s, found)
	for _, v := range found {
		l.broken[v.rule]++
	}
	if s.void {
		l.void++
		l.voidBroken += len(found)
	}
	for _, o := range s.orders {
		l.order(s, o)
	}
}

// judged counts what was found in a round that is not void, by policy.
func (l *tally) judged(s *scene, found []violation) {
	if l.struck == nil {
		l.struck, l.wrong = map[string]int64{}, map[string][2]int64{}
	}
	if s.void {
		return
	}
	l.struck[s.fault.name]++
	wrong := l.wrong[s.fault.name]
	for _, v := range found {
		wrong[policyOf(v.policy)]++
	}
	l.wrong[s.fault.name] = wrong
}

// policyOf is the place of a policy in what is counted.
func policyOf(policy string) int {
	return map[string]int{"takeover": 1}[policy]
}

// rows are what was counted of each kind of fault under each policy.
func (l *tally) rows(who string, peer bool) (rows []evidence.Row) {
	for _, kind := range l.kinds {
		for policy, name := range []string{"hold", "takeover"} {
			if peer && policy > 0 {
				continue // it has one way only
			}
			called, operations := who+", "+name, l.byKind[kind][policy].orders
			if peer {
				called, operations = who, l.byKind[kind][0].orders+l.byKind[kind][1].orders
			}
			rows = append(rows, evidence.Row{
				Suite: "tokens", Promise: evidence.Tokens, Who: called, Peer: peer, Layer: evidence.Processes, Fault: kind, Faults: l.struck[kind],
				Operations: int64(operations), Violations: l.wrong[kind][policy], Shared: policy > 0,
			})
		}
	}
	return rows
}

// order counts one order: by the kind of fault, and by how far it had come, if the fault could hit
// it.
func (l *tally) order(s *scene, o *order) {
	answers, runs := s.of(o.name), len(s.rig.book.copied(o.operation).runs)
	l.operations++
	l.requests += len(answers)
	for _, a := range answers {
		if a.status == 0 {
			l.unanswered++
		}
	}
	policy := policyOf(o.policy)
	l.byKind[s.fault.name][policy].add(runs, answers)
	if at, hit := s.where[o]; hit {
		l.byPlace[at][policy].add(runs, answers)
	}
}

func (f *fate) add(runs int, answers []answer) {
	last := answers[len(answers)-1]
	given, doubted := map[string]bool{}, false
	for _, a := range answers {
		if a.status == http.StatusCreated {
			given[a.body] = true
		}
		doubted = doubted || a.code == inDoubt
	}
	count := func(is bool, n *int) {
		if is {
			*n++
		}
	}
	f.orders++
	count(last.status == http.StatusCreated, &f.answers)
	count(last.code == inDoubt, &f.doubts)
	count(last.code == inDoubt && runs == 0, &f.unstarts)
	count(last.code == tokenUnknown, &f.lost)
	count(runs > 1, &f.reruns)
	count(last.code == inDoubt && len(given) > 0, &f.gone)
	count(last.status == http.StatusCreated && doubted, &f.late)
	count(len(given) > 1, &f.others)
}

// summary says in a line how far the orders had come.
func (s *scene) summary() string {
	if s.void {
		return "VOID: the sentinels have failed over a master that is alive"
	}
	t := &tally{}
	t.add(s, nil)
	var parts []string
	for at := range positions {
		if n := t.byPlace[at][0].orders + t.byPlace[at][1].orders; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, at))
		}
	}
	return fmt.Sprintf("%d requests, %d without an answer; hit: %s", t.requests, t.unanswered, strings.Join(parts, ", "))
}

func (l *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults, %d operations, %d requests, %d of them without an answer, since their process was killed\n", l.faults, l.operations, l.requests, l.unanswered)
	if l.void > 0 {
		fmt.Fprintf(&b, "%d rounds are void, since the sentinels failed over a master that is alive; %d violations in them\n", l.void, l.voidBroken)
	}
	for rule, n := range l.broken {
		fmt.Fprintf(&b, "BROKEN %d times: %s\n", n, rule)
	}
	const columns = "operations\tanswered\tin doubt\t… never begun\ttoken lost\tran again\tanswer lost\tdoubt, then answer\ttwo answers"
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for policy, name := range []string{"hold", "takeover"} {
		fmt.Fprintf(table, "\n%s: what was broken\t%s\n", name, columns)
		for _, kind := range l.kinds {
			fmt.Fprintf(table, "%s\t%s\n", kind, &l.byKind[kind][policy])
		}
		fmt.Fprintf(table, "\n%s: the fault struck\t%s\n", name, columns)
		for at := range positions {
			fmt.Fprintf(table, "%s\t%s\n", at, &l.byPlace[at][policy])
		}
	}
	_ = table.Flush() // to a builder
	return b.String()
}

func (f *fate) String() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", f.orders, f.answers, f.doubts, f.unstarts, f.lost, f.reruns, f.gone, f.late, f.others)
}
