package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// table is the outcome of a command.
type table struct {
	Title   string    `json:"title"`
	When    time.Time `json:"when"`
	Machine string    `json:"machine"`
	Rounds  int       `json:"rounds"`
	Seconds float64   `json:"seconds"` // each measured span; 0 if a round is not a span of time
	Columns []string  `json:"columns"`
	Rows    [][]any   `json:"rows"` // a text or a number each, in the order of the columns
	Notes   []string  `json:"notes,omitempty"`
	Samples []samples `json:"samples,omitempty"` // what the rows are the medians of
}

// samples are what was measured of one side, in each round.
type samples struct {
	What   string    `json:"what"`
	Side   string    `json:"side"`
	Unit   string    `json:"unit"`
	Rounds []float64 `json:"rounds"`
}

// keep adds samples.
func (t *table) keep(what, side, unit string, rounds []float64) {
	t.Samples = append(t.Samples, samples{what, side, unit, rounds})
}

// rounds finds samples, nil if there are none.
func (t *table) rounds(what, side, unit string) []float64 {
	for _, s := range t.Samples {
		if s.What == what && s.Side == side && s.Unit == unit {
			return s.Rounds
		}
	}
	return nil
}

// ratios are those of two sides in the same round, without rounds in which the other had nothing.
func ratios(of, to []float64) (list []float64) {
	for i := range min(len(of), len(to)) {
		if to[i] != 0 {
			list = append(list, of[i]/to[i])
		}
	}
	return list
}

// finite replaces what is no number, as a ratio to nothing.
func (t *table) finite() {
	for _, row := range t.Rows {
		for i, value := range row {
			if number, is := value.(float64); is && (math.IsInf(number, 0) || math.IsNaN(number)) {
				row[i] = "–"
			}
		}
	}
}

// column is one value of each round.
func column(rounds [][]float64, at int) []float64 {
	list := make([]float64, len(rounds))
	for i, values := range rounds {
		list[i] = values[at]
	}
	return list
}

// add appends a row.
func (t *table) add(cells ...any) { t.Rows = append(t.Rows, cells) }

// output is how a table is printed.
type output struct{ json bool }

func (o *output) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.json, "json", false, "print JSON instead of a table")
}

// taker takes a table as it is, in the place of standard output.
type taker struct {
	io.Writer

	table *table
}

// write prints the table.
func (o *output) write(stdout io.Writer, t *table) error {
	if taker, ok := stdout.(*taker); ok {
		taker.table = t
		return nil
	}
	if o.json {
		return t.json(stdout)
	}
	return t.text(stdout)
}

// cell writes numbers with three digits that count, and texts as they are.
func cell(value any) string {
	number, ok := value.(float64)
	switch {
	case !ok:
		return fmt.Sprint(value)
	case number >= 100 || number <= -100:
		return fmt.Sprintf("%.0f", number)
	case number >= 10 || number <= -10:
		return fmt.Sprintf("%.1f", number)
	}
	return fmt.Sprintf("%.2f", number)
}

func (t *table) lines() [][]string {
	lines := [][]string{t.Columns}
	for _, row := range t.Rows {
		line := make([]string, len(row))
		for i, value := range row {
			line[i] = cell(value)
		}
		lines = append(lines, line)
	}
	return lines
}

func (t *table) head() string {
	head := fmt.Sprintf("%s, %s: %s, rounds: %d", t.Title, t.When.Format(time.DateOnly), t.Machine, t.Rounds)
	if t.Seconds > 0 {
		head += fmt.Sprintf(" of %gs each", t.Seconds)
	}
	return head
}

func (t *table) text(w io.Writer) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n", t.head())
	for _, line := range t.lines() {
		fmt.Fprintln(aligned, strings.Join(line, "\t"))
	}
	if err := aligned.Flush(); err != nil {
		return err
	}
	for _, note := range t.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
	return nil
}

// body is the table and its notes in Markdown.
func (t *table) body() string {
	var text strings.Builder
	text.WriteString(grid(t.lines()))
	for _, note := range t.Notes {
		fmt.Fprintf(&text, "\n%s\n", wrapped(note))
	}
	return text.String()
}

// grid is lines as a table in Markdown, of which the first is the head.
func grid(lines [][]string) string {
	var text strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&text, "%s|\n", strings.Repeat("|---", len(line)))
		}
	}
	return text.String()
}

// wrapped breaks a text into lines as narrow as documents have them.
func wrapped(text string) string {
	var lines strings.Builder
	width := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width+1+n > 100:
			lines.WriteByte('\n')
			width = 0
		default:
			lines.WriteByte(' ')
			width++
		}
		lines.WriteString(word)
		width += n
	}
	return lines.String()
}

func (t *table) json(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(t)
}

// machine describes where a figure comes from.
func machine(ctx context.Context, redis *redisServer) (string, error) {
	fields, err := redis.info(ctx, "server")
	if err != nil {
		return "", err
	}
	version := "Redis " + fields["redis_version"]
	if fields["valkey_version"] != "" {
		version = "Valkey " + fields["valkey_version"]
	}
	return strings.Replace(aboutGo(), ",", ", "+version+",", 1), nil
}

// aboutGo is what is known without a Redis.
func aboutGo() string {
	return fmt.Sprintf("%d processors, %s %s/%s", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// median is the middle of some numbers, 0 of none.
func median(numbers []float64) float64 {
	n := len(numbers)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread is the middle half of some numbers, as from–to.
func spread(numbers []float64) string {
	if len(numbers) == 0 {
		return ""
	}
	low, high := half(numbers)
	return cell(low) + "–" + cell(high)
}

// half is the middle half of some numbers, of one at least.
func half(numbers []float64) (low, high float64) {
	n := len(numbers)
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[n/4], sorted[n-1-n/4]
}
