package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// step is a comparison of the command all, and a section of its page.
type step struct {
	name, about string
	command     string
	run         func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error
	args        string // flags of both forms
	full, quick string // further flags of each
}

// steps are all comparisons. The rounds are such that they fit into 20 minutes on two processors.
var steps = []step{
	{
		name: "redis", command: "redis", run: redisCommand,
		about: "What Redis can do a second: what each script takes in it, which runs one at a time, beside the bare commands of the same work.",
		full:  "-rounds 5", quick: "-rounds 1 -calls 500",
	},
	{
		name: "incr", command: "incr", run: incrCommand, about: "`GET /incr/{key}` over HTTP.",
		args: "-service " + built, full: "-rounds 5 -seconds 0.8", quick: "-rounds 1 -seconds 0.3 -conns 1,64",
	},
	{
		name: "counters", command: "counters", run: countersCommand,
		about: "Adding to counters by the library, over loopback; at ack=1 a replica confirms each value.",
		full:  "-rounds 5 -seconds 0.4 -callers 1,64,1024", quick: "-rounds 1 -seconds 0.15 -callers 64,1024",
	},
	{
		name: "locks", command: "locks", run: locksCommand, about: "Locks: without rivals, and contended by processes.",
		full: "-rounds 4 -seconds 0.4", quick: "-rounds 1 -seconds 0.15",
	},
	{
		name: "limits", command: "limits", run: limitsCommand, about: "Rate limits that no caller reaches, over loopback.",
		full: "-rounds 7 -seconds 0.5", quick: "-rounds 1 -seconds 0.15",
	},
	{
		name: "guard", command: "guard", run: guardCommand,
		about: "A guarded handler beside an unguarded one, and beside other ways to guard it, over HTTP.",
		full:  "-rounds 4 -seconds 0.8", quick: "-rounds 1 -seconds 0.3 -conns 1,64,256",
	},
	{
		name: "gateway", command: "gateway", run: gatewayCommand, about: "The gateway beside a bare reverse proxy.",
		full: "-rounds 4 -seconds 0.8", quick: "-rounds 1 -seconds 0.3 -conns 64",
	},
	{
		name: "ids", command: "ids", run: idsCommand, about: "Snowflake ids in one process, without Redis.",
		full: "-rounds 5 -sustained 4", quick: "-rounds 1 -seconds 0.1 -sustained 0.2",
	},
	{
		name: "slots", command: "slots", run: slotsCommand, about: "What the scripts of worker ids take in Redis, by the size of the ring.",
		full: "-rounds 5", quick: "-rounds 1",
	},
	{
		name: "workers", command: "workers", run: workersCommand, about: "Processes that start at once, and each lease a worker id.",
		full: "-rounds 3", quick: "-rounds 1 -processes 50",
	},
	{
		name: "memory", command: "memory", run: memoryCommand, about: "What tokens, counters and request ids take in Redis.",
		quick: "-many 250000",
	},
	{
		name: "once", command: "once", run: onceCommand,
		about: "What `coatcheck once` adds to a command: from the start of a process to its end.",
		full:  "-rounds 7 -seconds 0.5", quick: "-rounds 1 -seconds 0.2",
	},
	{name: "size", command: "size", run: sizeCommand,
		full: "-cold", about: "The program, as `make build` makes it, and a build with an empty cache."},
}

// section is what a step gave.
type section struct {
	Name    string  `json:"name"`
	Command string  `json:"command"`
	Took    float64 `json:"took_seconds"`
	Table   table   `json:"table"`
	Fault   string  `json:"fault,omitempty"` // why there is no table
}

// report is a whole run.
type report struct {
	When     time.Time `json:"when"`
	Took     float64   `json:"took_seconds"`
	Quick    bool      `json:"quick"`
	Machine  string    `json:"machine"`
	Versions []string  `json:"versions"`
	Load     [2]string `json:"load"` // the load average of a minute at the begin and at the end
	Sections []section `json:"sections"`
}

// allCommand runs all comparisons, and writes the page of benchmarks.
func allCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("all", flag.ContinueOnError)
	page := flags.String("page", "", "also write the page, a file in Markdown")
	file := flags.String("json", "", "also write everything that was measured, as JSON")
	quick := flags.Bool("quick", false, "one short round of each: a quick look, no figures to rely on")
	only := flags.String("only", "", "which sections to measure, with commas between them; all if empty")
	if err := parse(flags, args); err != nil {
		return err
	}
	chosen, err := stepsOf(*only)
	if err != nil {
		return err
	}
	r, faults := measureAll(ctx, chosen, *quick)
	if r == nil {
		return faults
	}
	figures, err := judgeTargets(targets, r.Sections)
	if err != nil {
		return err
	}
	asked, err := answersText(r.Sections)
	if err != nil {
		return err
	}
	if *file != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*file, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	if *page != "" {
		if err := os.WriteFile(*page, []byte(r.page(asked, figures)), 0o644); err != nil { //nolint:gosec // documents are for all to read
			return err
		}
	}
	_, err = io.WriteString(stdout, targetsText(figures))
	return errors.Join(faults, err)
}

// stepsOf are the steps of some names, all of none.
func stepsOf(names string) ([]step, error) {
	if names == "" {
		return steps, nil
	}
	var found []step
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if at < 0 {
			return nil, usageError{fmt.Errorf("no section is called %q", name)}
		}
		found = append(found, steps[at])
	}
	return found, nil
}

// measureAll runs steps one after the other, and says on standard error how far it is. The program
// is built first, since steps measure it. A step that fails ends nothing: its section says why, and
// the error as well.
func measureAll(ctx context.Context, steps []step, quick bool) (*report, error) {
	begun := time.Now()
	r := &report{When: begun.UTC().Truncate(time.Second), Quick: quick, Load: [2]string{loadAverage()}}
	if err := build(ctx); err != nil {
		return nil, err
	}
	about, err := aboutMachine(ctx)
	if err != nil {
		return nil, err
	}
	r.Machine = strings.Replace(about, " processors", " processors"+model(), 1)
	r.Versions = versions()
	var faults []error
	for i, step := range steps {
		began := time.Now()
		args := strings.Fields(step.args + " " + step.full)
		if quick {
			args = strings.Fields(step.args + " " + step.quick)
		}
		command := strings.Join(append([]string{step.command}, args...), " ")
		fmt.Fprintf(os.Stderr, "%d of %d, after %.0f s: %s\n", i+1, len(steps), time.Since(begun).Seconds(), command)
		taken := &taker{Writer: io.Discard, table: &table{}}
		done := section{Name: step.name, Command: command}
		if err := step.run(ctx, args, strings.NewReader(""), taken); err != nil {
			done.Fault = err.Error()
			faults = append(faults, fmt.Errorf("%s: %w", step.name, err))
		}
		taken.table.finite()
		done.Took, done.Table = time.Since(began).Seconds(), *taken.table
		r.Sections = append(r.Sections, done)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	r.Load[1], r.Took = loadAverage(), time.Since(begun).Seconds()
	return r, errors.Join(faults...)
}
