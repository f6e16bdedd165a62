package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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
}

// add appends a row.
func (t *table) add(cells ...any) { t.Rows = append(t.Rows, cells) }

// drop removes a column.
func (t *table) drop(column string) {
	at := slices.Index(t.Columns, column)
	t.Columns = slices.Delete(t.Columns, at, at+1)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Delete(row, at, at+1)
	}
}

// output is where a table goes.
type output struct {
	json bool
	file string
}

func (o *output) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flags.StringVar(&o.file, "o", "", "also write a file; its ending says how: .json, .csv or .md")
}

// write prints the table, and writes the file that was asked for.
func (o *output) write(stdout io.Writer, t *table) error {
	form := (*table).text
	if o.json {
		form = (*table).json
	}
	if err := form(t, stdout); err != nil || o.file == "" {
		return err
	}
	forms := map[string]func(*table, io.Writer) error{".json": (*table).json, ".csv": (*table).csv, ".md": (*table).markdown}
	form = forms[filepath.Ext(o.file)]
	if form == nil {
		return usageError{fmt.Errorf("-o %s: a file's name ends in .json, .csv or .md", o.file)}
	}
	file, err := os.Create(o.file)
	if err != nil {
		return err
	}
	if err := form(t, file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
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

func (t *table) markdown(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n%s.\n\n", t.Title, t.head())
	for i, line := range t.lines() {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&text, "%s|\n", strings.Repeat("|---", len(line)))
		}
	}
	for _, note := range t.Notes {
		fmt.Fprintf(&text, "\n%s\n", note)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (t *table) json(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(t)
}

func (t *table) csv(w io.Writer) error { return csv.NewWriter(w).WriteAll(t.lines()) }

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
	return fmt.Sprintf("%d processors (shared machine), %s, %s %s/%s", runtime.NumCPU(), version, runtime.Version(), runtime.GOOS, runtime.GOARCH), nil
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
	n := len(numbers)
	if n == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return cell(sorted[n/4]) + "–" + cell(sorted[n-1-n/4])
}
