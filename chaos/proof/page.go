package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

// enough is how many faults a promise is meant to stand.
const enough = 1000

// promises are those of docs/guarantees.md: where they stand there, what is an operation, what is a
// violation, and who else is broken.
var promises = []struct{ name, anchor, says string }{
	{evidence.Tokens, "idempotency-tokens",
		`An operation is one that clients ask for until they know, half of them twice at once. A violation is
a handler that ran twice, or any other rule of [chaos](../chaos/doc.go) that did not hold. The
middleware with ` + "`SETNX`" + ` is [a hand-written one](../chaos/naive_test.go).`},
	{evidence.WorkerIDs, "worker-ids-no-two-ids-are-equal",
		`An operation is an id that was stamped. A violation is one that was stamped twice; in the
simulation, a run in which that could happen, which ends there. The allocator with a mask is
[chaos/ids/masked_test.go](../chaos/ids/masked_test.go).`},
	{evidence.Fences, "fences-they-only-grow",
		`An operation is a grant. A violation is a history of a lock that no order of rising fences explains;
in the simulation, a run in which a fence did not grow.`},
	{evidence.Locks, "locks-a-holder-is-stopped-before-anyone-else-can-hold-and-fences-rise",
		`An operation is a grant. A violation is a grant while another client still looked and was told
that the lock is his, and for coatcheck any history that has no explanation. Each library renews
every third of the lease, and is asked whether the lock is still held in the way that its
documentation says.`},
	{evidence.Counters, "counters-no-value-is-handed-out-twice",
		`An operation is a value that was told. A violation is one that was told twice, or a call that was
told no more than another one had been told before it began.`},
	{evidence.Segments, "where-the-others-are-attacked",
		`An operation is an id that was told, and each kill counts. A violation is an id that was told twice,
was of no range that the process had, or was left out.`},
	{evidence.Outages, "where-the-others-are-attacked",
		`An operation is a call. A violation is one that ran more than once, did not run although it was
answered, or ran although it was said that it did not.`},
}

const head = `# Proof

What coatcheck promises, broken on purpose and counted, beside what others do under the same faults.
` + "`make proof`" + ` writes this page and that of the benchmarks, on any machine with Go and apt-get, in
less than 40 minutes on two quiet cores. [guarantees.md](guarantees.md) has the promises and what
they assume, and [chaos](../chaos/README.md) how they are broken.

`

const reading = `Each cell has faults made · operations checked · **violations**. *Processes* are real ones on real
servers, broken by signals and commands; *in one process* requests and replies are cut on their way,
or a server loses all; *simulated* is the protocol [in memory](../internal/leasesim/README.md), with
clocks and messages as well. What is found counts for the fault that struck last. What others break
shows that the check finds what it looks for.
`

// content are all lines of a run, by what they are.
type content struct {
	run      evidence.Run
	steps    []evidence.Step
	rows     []evidence.Row
	cases    []evidence.Case
	timeline *evidence.Timeline
}

func contentOf(lines []evidence.Line) (c content) {
	for _, line := range lines {
		switch {
		case line.Row != nil:
			c.rows = append(c.rows, *line.Row)
		case line.Case != nil:
			c.cases = append(c.cases, *line.Case)
		case line.Step != nil:
			c.steps = append(c.steps, *line.Step)
		case line.Timeline != nil:
			c.timeline = line.Timeline
		case line.Run != nil && line.Run.Ended == "":
			c.run = *line.Run
		case line.Run != nil:
			c.run.Ended, c.run.LoadEnd = line.Run.Ended, line.Run.LoadEnd
		}
	}
	return c
}

// render makes the page and its picture, if there is one. The tables of prices are those of the
// page before.
func render(lines []evidence.Line, before string) (page, picture string) {
	c := contentOf(lines)
	var b strings.Builder
	b.WriteString(head)
	c.machine(&b)
	b.WriteString("\n" + reading)
	for _, promise := range promises {
		m := matrixOf(c.rows, promise.name)
		fmt.Fprintf(&b, "\n## %s\n\n[The promise](guarantees.md#%s), and what it assumes.\n\n%s\n\n", promise.name,
			promise.anchor, promise.says)
		if len(m.kinds) == 0 {
			b.WriteString("Nothing was counted in this run.\n")
			continue
		}
		b.WriteString(m.String())
		fmt.Fprintf(&b, "\n%s\n%s", m.amount(), m.waited())
	}
	if c.timeline != nil {
		picture = draw(c.timeline)
		fmt.Fprintf(&b, "\n## One violation\n\n%s, %s:\n%s.\n\n![Who held the lock, and when](%s)\n", capital(c.timeline.Who),
			c.timeline.Fault, c.timeline.Title, pictureFile)
	}
	for _, kind := range cases {
		b.WriteString(kind.of(c.cases))
	}
	c.seeds(&b)
	b.WriteString(prices(before))
	return b.String(), picture
}

// amount says how many faults ours have stood, and where there are more.
func (m *matrix) amount() string {
	var parts []string
	for _, layer := range []string{evidence.Processes, evidence.InProcess, evidence.Simulated} {
		if n := m.faults(layer); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", grouped(n),
				strings.Replace(layer, evidence.Processes, "among "+evidence.Processes, 1)))
		}
	}
	text := fmt.Sprintf("Faults that coatcheck stood: %s (%s).", grouped(m.faults("")), strings.Join(parts, ", "))
	if m.faults("") < enough {
		text += "\n`make chaos` makes more of them, and takes as long as you let it."
	}
	return text
}

// machine is where and how it ran, and how long each step took.
func (c content) machine(b *strings.Builder) {
	r := c.run
	fmt.Fprintf(b, "| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"command", "`" + r.Command + "`"}, {"begun and ended", r.Began + ", " + r.Ended}, {"cores", fmt.Sprint(r.Cores)},
		{"kernel", r.Kernel}, {"load average, at the beginning and the end", r.Load + "; " + r.LoadEnd},
		{"versions", fmt.Sprintf("%s, Redis %s, commit `%s`", r.Go, r.Redis, r.Commit)}, {"seed", fmt.Sprintf("`%d`", r.Seed)},
		{"scale", fmt.Sprintf("%d %% of the rounds of a whole run", r.Scale)},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
	}
	slices.SortStableFunc(c.steps, func(a, b evidence.Step) int { return strings.Compare(a.Began, b.Began) })
	b.WriteString("\n| step | began | commit | seconds | |\n|---|---|---|---|---|\n")
	for _, step := range c.steps {
		fmt.Fprintf(b, "| %s | %s | `%s` | %d | %s |\n", step.Name, step.Began, step.Commit, step.Seconds,
			map[bool]string{false: "passed", true: failed}[step.Failed])
	}
}

// failed is what the page says of a step that did.
const failed = "**failed**"

// seeds are those of the suites, which they draw their moments and orders by.
func (c content) seeds(b *strings.Builder) {
	of := map[string]map[uint64]bool{}
	for _, row := range c.rows {
		if of[row.Suite] == nil {
			of[row.Suite] = map[uint64]bool{}
		}
		of[row.Suite][row.Seed] = true
	}
	b.WriteString("\n## Seeds\n\nWhat is drawn by lot can be drawn again (`-seed`), but the moments at which processes and\nservers act " +
		"are the machine's.\n\n| suite | seeds |\n|---|---|\n")
	for _, suite := range slices.Sorted(maps.Keys(of)) {
		var seeds []string
		for _, seed := range slices.Sorted(maps.Keys(of[suite])) {
			seeds = append(seeds, fmt.Sprintf("`%d`", seed))
		}
		fmt.Fprintf(b, "| %s | %s |\n", suite, strings.Join(seeds, ", "))
	}
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
