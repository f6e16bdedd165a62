package monitoring_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/metrics"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

const page = "../../docs/metrics.md"

func TestMetricsAreDocumented(t *testing.T) {
	text, p := read(t, page), open(t)
	common := func(m metrics.Metric) bool { return has(p.library, m) && has(p.gateway, m) && has(p.service, m) }
	written := text
	for _, table := range []struct {
		of   string
		from *metrics.Registry
		in   func(metrics.Metric) bool
	}{
		{"of every program", p.library, common},
		{"of programs with the part", p.library, func(m metrics.Metric) bool { return !common(m) }},
		{"of the service", p.service, func(m metrics.Metric) bool { return !has(p.library, m) }},
		{"of the gateway", p.gateway, func(m metrics.Metric) bool { return !common(m) }},
	} {
		written = rewritten(t, written, table.of, tableOf(table.from, table.in))
	}
	if *update {
		if err := os.WriteFile(page, []byte(written), 0o600); err != nil {
			t.Fatalf("writing %s: %v", page, err)
		}
		return
	}
	if written != text {
		t.Errorf("%s does not say what the programs tell: go test -run %s -update in deploy/monitoring", page, t.Name())
	}
}

// Whatever a Go program shows, the service shows as well.
func TestServiceShowsWhatAGoProgramShows(t *testing.T) {
	p := open(t)
	for _, metric := range p.library.Listed() {
		if !has(p.service, metric) {
			t.Errorf("the service does not show %s", metric.Name)
		}
	}
}

func has(registry *metrics.Registry, metric metrics.Metric) bool {
	return slices.ContainsFunc(registry.Listed(), func(m metrics.Metric) bool { return m.Name == metric.Name })
}

func tableOf(registry *metrics.Registry, in func(metrics.Metric) bool) string {
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for _, metric := range registry.Listed() {
		if in(metric) {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", metric.Name, metric.Kind, strings.Join(metric.Labels, ", "), metric.Help)
		}
	}
	return b.String()
}

// rewritten puts a table between the lines that mark its place.
func rewritten(t *testing.T, text, of, table string) string {
	t.Helper()
	begin, end := "<!-- "+of+": written by a test -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table %s", page, of)
	}
	return before + begin + table + end + after
}

// What a name promises its metric keeps.
func TestMetricsAreCalledWhatTheyAre(t *testing.T) {
	p := open(t)
	for _, metric := range slices.Concat(p.service.Listed(), p.gateway.Listed()) {
		switch {
		case !strings.HasPrefix(metric.Name, "coatcheck_"):
			t.Errorf("%s does not begin with coatcheck_", metric.Name)
		case (metric.Kind == metrics.KindCounter) != strings.HasSuffix(metric.Name, "_total"):
			t.Errorf("%s is a %s", metric.Name, metric.Kind)
		case metric.Help == "" || !strings.HasSuffix(metric.Help, "."):
			t.Errorf("%s: %q is no sentence", metric.Name, metric.Help)
		}
		for _, other := range []string{"_ms", "milliseconds", "minutes", "kilobytes", "percent"} {
			if strings.Contains(metric.Name, other) {
				t.Errorf("%s is not in a base unit", metric.Name)
			}
		}
		for _, label := range metric.Labels {
			if slices.Contains([]string{"name", "key", "pool", "tag", "lock", "owner", "identity", "holder", "token", "principal", "path", "url"}, label) {
				t.Errorf("%s has a label %s, whose values clients choose", metric.Name, label)
			}
		}
	}
}
