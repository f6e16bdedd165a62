package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

// caseTable is a table that has no peers.
type caseTable struct {
	name, says string
	columns    []string
}

// cases are all of them, in the order of the page.
var cases = []caseTable{
	{evidence.Upgrades, `An older program serves, then both, this one, both, and the old one again, while clients
use whatever serves, as [upgrades.md](upgrades.md) promises. Each token is asked for once more at
the end, and each request with a key at either program, by turns. *Twice* is whatever two were
given, or a repeat that heard something else. Again:
` + "`go test -tags=check -v -run Upgrade ./chaos/servers`" + `; the commands of that page:
` + "`go test -tags=check -run UpgradesPage ./cmd/coatcheck/internal/cli`.",
		[]string{"Redis", "programs that came or went", "values", "locks", "Snowflake ids", "ids of a segment",
			"requests with a key", "tokens", "twice"}},
	{evidence.Resolvers, `Services keep the [table of operations](effects.md#a-table-of-operations) behind two gateways whose
route has a [resolver](idempotency.md#resolvers). Each service is a primary with three workers.
Redis fails over under ` + "`--ack all`" + `. *Killed* counts workers · services · gateways · masters of
Redis, and *stopped* counts workers · gateways · masters, which go on later. Many clients repeat the
request of each key until they have its answer. One key of ten is asked for once, by a client that
goes away.

The gateways count the service's answers about doubts: *completed*, *not begun*, or none, *in vain*.
*In doubt* are operations a minute after the last fault. *No answer* and *wrong answer* count
clients: an answer has to name the key's only payment. Nobody settles anything. Without a resolver
clients are answered ` + "`outcome-unknown`" + `, and the doubt stays. In the rows of a queue's
consumers and of ` + "`coatcheck once`" + ` these are the workers. [The suite](../chaos/resolvers/doc.go) again:
` + "`go test -tags=check -v ./chaos/resolvers -args -keys=500 -duplicates=20`" + `.`,
		[]string{"service", "resolver", "keys × clients", "killed", "stopped", "completed", "not begun",
			"in vain", "in doubt", "no answer", "wrong answer", "twice"}},
	{evidence.Engines, `What one service says on each engine that [engines.md](engines.md#what-is-known-of-each) calls
emulated: a Redis behind [a proxy](../internal/testing/engines/doc.go) that hides or refuses what
stands in the second column. A code is that of a refusal; why it does not start is its first line,
which the test compares. Again: ` + "`go test -tags=check -v -run Emulated ./chaos/servers`.",
		[]string{"engine", "emulated by", "settings", "tokens", "locks", "limits", "counters", "segments", "worker ids"}},
}

// of is the table's section, with its cases in an order that does not depend on which ended first.
func (k caseTable) of(all []evidence.Case) string {
	var rows []string
	for _, one := range all {
		if one.Table == k.name {
			cells := slices.Clone(one.Cells)
			for i, cell := range cells {
				if n, err := strconv.ParseInt(cell, 10, 64); err == nil {
					cells[i] = grouped(n)
				}
			}
			rows = append(rows, "| "+strings.Join(cells, " | ")+" |\n")
		}
	}
	text := fmt.Sprintf("\n## %s\n\n%s\n\n", k.name, k.says)
	if rows == nil {
		return text + "Nothing was tried in this run.\n"
	}
	slices.Sort(rows)
	return text + "| " + strings.Join(k.columns, " | ") + " |\n" + strings.Repeat("|---", len(k.columns)) + "|\n" + strings.Join(rows, "")
}
