package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
)

// fate is what a broken order came to.
type fate struct {
	answers  int // the last client got the handler's answer
	doubts   int // … or heard that nobody knows
	unstarts int // of these: the handler had never begun
	reruns   int // the handler began more than once
	gone     int // a client had been given the answer, and the last one heard that nobody knows
	late     int // a client heard that nobody knows, and a later one got the answer
	others   int // clients were given two answers of the handler
}

// tally counts what was broken where, and what became of it.
type tally struct {
	rounds, requests, orders, unanswered int
	void                                 int // rounds in which the sentinels failed over by themselves
	broken                               int // violations in them
	found                                map[rule]int

	by [2][positions]fate // under hold, under takeover; of the orders that the fault could hit
}

func (l *tally) add(s *scene, found []violation) {
	l.rounds++
	for _, v := range found {
		if l.found == nil {
			l.found = map[rule]int{}
		}
		l.found[v.rule]++
	}
	if s.void {
		l.void++
		l.broken += len(found)
	}
	for _, o := range s.orders {
		answers := s.of(o.name)
		l.orders++
		l.requests += len(answers)
		for _, a := range answers {
			if a.status == 0 {
				l.unanswered++
			}
		}
		at, hit := s.where[o]
		if !hit {
			continue
		}
		policy := 0
		if o.policy == "takeover" {
			policy = 1
		}
		l.by[policy][at].add(len(s.rig.book.copied(o.operation).runs), answers)
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
	isAnswer := last.status == http.StatusCreated
	count(isAnswer, &f.answers)
	count(!isAnswer, &f.doubts)
	count(!isAnswer && runs == 0, &f.unstarts)
	count(runs > 1, &f.reruns)
	count(!isAnswer && len(given) > 0, &f.gone)
	count(isAnswer && doubted, &f.late)
	count(len(given) > 1, &f.others)
}

// summary says in a line how far the orders had come, and what became of them.
func (s *scene) summary() string {
	t := &tally{}
	t.add(s, nil)
	if s.void {
		return "VOID: the sentinels have failed over a master that is alive"
	}
	var parts []string
	for at := range positions {
		if n := t.by[0][at].all() + t.by[1][at].all(); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, at))
		}
	}
	return fmt.Sprintf("%d requests, %d without an answer; hit: %s", t.requests, t.unanswered, strings.Join(parts, ", "))
}

func (f *fate) all() int { return f.answers + f.doubts }

func (l *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults, %d operations, %d requests, %d of them without an answer, since their process was killed\n\n", l.rounds, l.orders, l.requests, l.unanswered)
	if l.void > 0 {
		fmt.Fprintf(&b, "%d rounds are void, since the sentinels failed over a master that is alive; %d violations in them\n\n", l.void, l.broken)
	}
	for rule, n := range l.found {
		fmt.Fprintf(&b, "BROKEN %d times: %s\n", n, rule)
	}
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "policy\tthe fault struck\torders\tanswered\tin doubt\t… and never begun\tran again\tanswer lost\tdoubt, then answer\ttwo answers")
	for policy, name := range []string{"hold", "takeover"} {
		for at := range positions {
			f := l.by[policy][at]
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", name, at, f.all(), f.answers, f.doubts, f.unstarts, f.reruns, f.gone, f.late, f.others)
		}
	}
	_ = table.Flush() // to a builder
	return b.String()
}
