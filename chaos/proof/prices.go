package main

import "strings"

// tables are those that chaos/prices writes between markers, with the text before each.
var tables = []struct{ name, text string }{
	{"restarts", `### After restarts and losses

Seconds until the next one is handed out, and values that are left out, on a Redis with ` +
		"`appendonly\nyes`" + `. Times begin when what was broken is back: Redis answers, and the service says where it
listens. A few tenths of a second can be those of a busy machine.

`},
	{"failovers", `### After failovers

` + "`--ack all`" + `, and the settings of [operations.md](operations.md). Times begin when every replica
confirms a write again. The new process is started then; its time includes its start. In a cluster
a failover and a moved slot count as [a loss](guarantees.md#how-a-loss-is-noticed). The other
numbers are of a template without room for a jump, ` + "`P-{n:4}`" + `.

`},
	{"dead waiters", `### While waiters die

A process with many waiters is killed, or stopped with its connections open, and the locks that it
waits for are given back one after the other. Eight callers of another process lock other names
meanwhile, and one counts: the first second, and the worst of those after it.

`},
	{"outages", `### During outages

The longest time in seconds in which no value and no lock was handed out, and then of ids, which go
on from held worker ids. Two services for each ` + "`ack`" + ` share the servers. *Killed*: ` + "`kill -9`" + `, and a
start once another is master. *Stopped*: SIGSTOP until then. *Wiped*: ` + "`kill -9`" + ` and a start without
data, before its absence is noticed. *Twice* are values, ids, worker ids and locks that two were
given.

`},
}

// prices are the tables of the page before.
func prices(before string) string {
	var b strings.Builder
	b.WriteString("\n## Prices\n\nWhat safety costs, measured from outside, by `make prices` alone " +
		"too;\n[operations.md](operations.md#what-safety-costs) says what each row is and what lowers it.\n")
	for _, table := range tables {
		begin, end := "<!-- prices of "+table.name+" -->\n", "<!-- end of prices of "+table.name+" -->\n"
		_, rest, _ := strings.Cut(before, begin)
		rows, _, _ := strings.Cut(rest, end)
		b.WriteString("\n" + table.text + begin + rows + end)
	}
	return b.String()
}
