//go:build nightly

package prices

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// figure is what a row of restarts came to. What was not asked for is nil.
type figure struct {
	Row   string `json:"row"`
	Redis string `json:"redis,omitempty"` // its persistence, where that matters

	// Milliseconds until the next one was handed out.
	ID      *int64 `json:"id_ms,omitempty"`
	Counter *int64 `json:"counter_ms,omitempty"`
	Lock    *int64 `json:"lock_ms,omitempty"`
	Segment *int64 `json:"segment_ms,omitempty"`

	// Values that were left out.
	CounterJump *int64 `json:"counter_jump,omitempty"`
	SegmentJump *int64 `json:"segment_jump,omitempty"`
}

// figures are all that was measured in a run. It may be used by several goroutines.
type figures struct {
	mu       sync.Mutex
	Restarts []figure `json:"restarts,omitempty"`
	Outages  []outage `json:"outages,omitempty"`
	Crowds   []crowd  `json:"dead_waiters,omitempty"`

	Failovers []failover `json:"failovers,omitempty"`
}

// note adds a row to those of its kind.
func note[R any](t *testing.T, f *figures, rows *[]R, row R) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	*rows = append(*rows, row)
	text, err := json.Marshal(row)
	expect.NoError(t, "writing a row", err)
	t.Logf("%s", text)
}

// publish prints the table, and writes it and the figures where the flags say.
func (f *figures) publish(t *testing.T, what string, table func(before *figures) string) {
	t.Helper()
	order := map[string]int{}
	for i, row := range restarts {
		order[row.name] = i
	}
	for i, row := range commandRows {
		order[row.name] = len(restarts) + i
	}
	slices.SortStableFunc(f.Restarts, func(a, b figure) int {
		return cmp.Or(cmp.Compare(order[a.Row], order[b.Row]), strings.Compare(b.Redis, a.Redis))
	})
	var before figures
	if *beforeFile != "" {
		expect.Error(t, "read", before.read(inTree(*beforeFile)), nil)
	}
	text := table(&before) + fmt.Sprintf("\nMeasured on %s, on %d cores.\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU())
	t.Logf("\n%s", text)
	if *write {
		expect.Error(t, "writeBetween", writeBetween(inTree("docs/proof.md"), "prices of "+what, text), nil)
	}
	if *jsonFile != "" {
		expect.Error(t, "save", f.save(inTree(*jsonFile)), nil)
	}
}

// save writes the figures into a file, beside those of another kind that it has.
func (f *figures) save(file string) error {
	var kept figures
	if err := kept.read(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kept.Restarts, kept.Outages = newer(f.Restarts, kept.Restarts), newer(f.Outages, kept.Outages)
	kept.Failovers, kept.Crowds = newer(f.Failovers, kept.Failovers), newer(f.Crowds, kept.Crowds)
	text, err := json.MarshalIndent(&kept, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// newer are the rows of this run, or those that were kept if it has none.
func newer[R any](now, kept []R) []R {
	if len(now) > 0 {
		return now
	}
	return kept
}

func (f *figures) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, f)
}

// writeBetween puts a text between the two markers of that name in a file.
func writeBetween(file, marker, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+marker+" -->\n", "<!-- end of "+marker+" -->\n"
	from, to := strings.Index(string(page), begin), strings.Index(string(page), end)
	if from < 0 || to < from {
		return fmt.Errorf("%s has no place between %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(string(page[:from])+begin+text+string(page[to:])), 0o644)
}

// restartTable is the table in Markdown. Where there are figures of before they stand first.
func (f *figures) restartTable(before *figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| until the next one, in seconds | id | counter's value | lock | segment's id | counter jumps by | segment jumps by |\n|---|---|---|---|---|---|---|\n")
	for _, row := range f.Restarts {
		var old figure
		if i := slices.IndexFunc(before.Restarts, func(o figure) bool { return o.Row == row.Row && o.Redis == row.Redis }); i >= 0 {
			old = before.Restarts[i]
		}
		head := row.Row
		if row.Redis != "" {
			head += ", `" + row.Redis + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", head, both(old.ID, row.ID, seconds), both(old.Counter, row.Counter, seconds), both(old.Lock, row.Lock, seconds),
			both(old.Segment, row.Segment, seconds), both(old.CounterJump, row.CounterJump, thousands), both(old.SegmentJump, row.SegmentJump, thousands))
	}
	return b.String()
}

// both is a figure, after the one before it if there is one.
func both(before, now *int64, write func(int64) string) string {
	switch {
	case now == nil:
		return "–"
	case before == nil:
		return write(*now)
	}
	return write(*before) + " → " + write(*now)
}

func seconds(milliseconds int64) string {
	span := time.Duration(milliseconds) * time.Millisecond
	if span < time.Second {
		return strconv.FormatFloat(span.Seconds(), 'f', 2, 64)
	}
	return strconv.FormatFloat(span.Seconds(), 'f', 1, 64)
}

var threeDigits = regexp.MustCompile(`(\d)(\d{3})\b`)

func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for {
		grouped := threeDigits.ReplaceAllString(text, "$1,$2")
		if grouped == text {
			return text
		}
		text = grouped
	}
}

// The table says what was measured, beside what was measured before.
func TestTableHasTheFiguresBeforeAndNow(t *testing.T) {
	before := figures{Restarts: []figure{{Row: "a", ID: new(int64(31600)), CounterJump: new(int64(1_000_000))}}}
	now := figures{Restarts: []figure{{Row: "a", ID: new(int64(50)), CounterJump: new(int64(0))}, {Row: "b", Redis: "appendfsync always", Lock: new(int64(2000))}}}
	_, rows, _ := strings.Cut(now.restartTable(&before), "|---|---|---|---|---|---|---|\n")
	want := "| a | 31.6 → 0.05 | – | – | – | 1,000,000 → 0 | – |\n| b, `appendfsync always` | – | – | 2.0 | – | – | – |\n"
	if rows != want {
		t.Errorf("got\n%s\nwant\n%s", rows, want)
	}
}
