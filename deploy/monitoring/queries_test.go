package monitoring_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v4"
)

const (
	alertsFile    = "../prometheus/alerts.yml"
	dashboardFile = "../grafana/coatcheck.json"
	rulesPage     = "https://github.com/coatcheck/coatcheck/blob/main/docs/metrics.md#"
)

// query is one of PromQL, and where it stands.
type query struct{ at, text string }

func TestQueriesNameMetricsThatExist(t *testing.T) {
	queries := slices.Concat(alertQueries(t), dashboardQueries(t), pageQueries(t))
	is := open(t).known()
	for _, q := range queries {
		for _, fault := range faultsOf(q.text, is) {
			t.Errorf("%s: %s, in the query\n%s", q.at, fault, q.text)
		}
	}
	if len(queries) < 80 {
		t.Errorf("%d queries: does this test still read them?", len(queries))
	}
}

// Each query is wrong in one way.
func TestWrongQueriesAreFound(t *testing.T) {
	is := open(t).known()
	for _, row := range []struct{ query, fault string }{
		{`sum(rate(coatcheck_ids_total[5m]))`, ""},
		{`rate(coatcheck_ids_total[5m]`, "does not parse"},
		{`rate(coatcheck_ids_total)`, "does not parse"}, // an instant where a range belongs
		{`coatcheck_tickets_total`, "no metric coatcheck_tickets_total"},
		{`rate(coatcheck_http_request_duration_seconds[5m])`, "no metric coatcheck_http_request_duration_seconds"},
		{`coatcheck_ids_total{tag="x"}`, "coatcheck_ids_total has no label tag"},
		{`sum by (pool) (coatcheck_ids_total)`, "has a label pool"},
		{`sum by (le) (rate(coatcheck_lock_wait_seconds_bucket[5m]))`, ""},
		{`sum by (le) (rate(coatcheck_lock_wait_seconds_count[5m]))`, "has a label le"},
		{`coatcheck_token_claims_total{outcome="in-doubt"}`, `is never "in-doubt"`},
		{`coatcheck_token_claims_total{outcome=~"in_doubt|gone"}`, `is never "gone"`},
		{`coatcheck_token_claims_total{outcome!="lost"}`, `is never "lost"`},
		{`coatcheck_http_requests_total{status=~"5..",job=~"$job"}`, ""},
		{`coatcheck_redis_calls_total{script="token_claims"}`, `is never "token_claims"`},
		{`rate(coatcheck_worker_stamping[5m])`, "is no counter"},
	} {
		faults := strings.Join(faultsOf(row.query, is), "; ")
		if row.fault == "" && faults != "" || !strings.Contains(faults, row.fault) {
			t.Errorf("%s: found %q, and not %q", row.query, faults, row.fault)
		}
	}
}

var words = regexp.MustCompile(`^[a-z0-9_-]+(\|[a-z0-9_-]+)*$`)

// faultsOf finds what is wrong with a query, whose intervals may be Grafana's.
func faultsOf(text string, is known) (faults []string) {
	text = strings.ReplaceAll(text, "$__rate_interval", "5m")
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return []string{"does not parse: " + err.Error()}
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			checkSelector(node, is, fault)
		case *parser.AggregateExpr:
			checkGrouping(node, is, fault)
		case *parser.Call:
			checkCall(node, fault)
		}
		return nil
	})
	return faults
}

func checkSelector(selector *parser.VectorSelector, is known, fault func(string, ...any)) {
	has, there := is[selector.Name]
	if !there {
		fault("there is no metric %s", selector.Name)
		return
	}
	for _, matcher := range selector.LabelMatchers {
		values, there := has[matcher.Name]
		switch {
		case matcher.Name == "__name__":
		case !there:
			fault("%s has no label %s", selector.Name, matcher.Name)
		case len(values) > 0 && words.MatchString(matcher.Value):
			for word := range strings.SplitSeq(matcher.Value, "|") {
				if !slices.Contains(values, word) {
					fault("label %s of %s is never %q", matcher.Name, selector.Name, word)
				}
			}
		}
	}
}

// checkGrouping looks for the labels that a result is grouped by: each belongs to a metric below.
func checkGrouping(aggregate *parser.AggregateExpr, is known, fault func(string, ...any)) {
	for _, label := range aggregate.Grouping {
		found := false
		parser.Inspect(aggregate.Expr, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				_, has := is[selector.Name][label]
				found = found || has
			}
			return nil
		})
		if !found {
			fault("no metric in %s has a label %s", aggregate.Expr, label)
		}
	}
}

// checkCall finds rates of what does not only grow.
func checkCall(call *parser.Call, fault func(string, ...any)) {
	if call.Func.Name != "rate" && call.Func.Name != "increase" {
		return
	}
	if matrix, ok := call.Args[0].(*parser.MatrixSelector); ok {
		name := matrix.VectorSelector.(*parser.VectorSelector).Name
		if !slices.ContainsFunc([]string{"_total", "_bucket", "_sum", "_count"}, func(end string) bool { return strings.HasSuffix(name, end) }) {
			fault("%s is no counter", name)
		}
	}
}

// rules is an alert rules file.
type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) (all []rule) {
	t.Helper()
	var file rules
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatalf("reading %s: %v", alertsFile, err)
	}
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func alertQueries(t *testing.T) (queries []query) {
	t.Helper()
	for _, rule := range alertRules(t) {
		queries = append(queries, query{alertsFile + ": " + rule.Alert, rule.Expr})
	}
	return queries
}

// pageQueries are those that docs/metrics.md names.
func pageQueries(t *testing.T) (queries []query) {
	t.Helper()
	_, ways, _ := strings.Cut(read(t, page), "\nSome ways to ask:\n")
	ways, _, _ = strings.Cut(ways, "\n## ")
	for _, cell := range regexp.MustCompile("\\| `([^`]+)` \\|\n").FindAllStringSubmatch(ways, -1) {
		queries = append(queries, query{page, cell[1]})
	}
	if len(queries) == 0 {
		t.Errorf("%s shows no query", page)
	}
	return queries
}

var (
	affected = regexp.MustCompile(`\$labels\.(instance|job)`)
	figures  = regexp.MustCompile(`\{\{ *([^{}]*\$value[^{}]*?) *\}\}`)
	// what looks further: a command, or a place.
	lookAt = regexp.MustCompile(`coatcheck [a-z-]+ |redis-cli|log of|its log|/readyz|Prometheus\.$`)
)

// checkAlert finds what a text lacks: what is affected, round figures, and what to run.
func checkAlert(t *testing.T, rule rule) {
	t.Helper()
	summary, description := rule.Annotations["summary"], rule.Annotations["description"]
	if rule.Alert != "CoatcheckNotScraped" && !affected.MatchString(summary) {
		t.Errorf("%s: the summary %q names neither instance nor job", rule.Alert, summary)
	}
	if !lookAt.MatchString(description) {
		t.Errorf("%s: the description %q says neither what to run nor where to look", rule.Alert, description)
	}
	for _, found := range figures.FindAllStringSubmatch(summary+description, -1) {
		round := strings.HasPrefix(rule.Expr, "round(") && found[1] != "$value | humanize"
		if found[1] != `printf "%.0f" $value` && !strings.HasPrefix(found[1], "if ") && !round {
			t.Errorf("%s: the figure %s is not round", rule.Alert, found[0])
		}
	}
	_, section, _ := strings.Cut(read(t, page), "\n### "+rule.Alert+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	if !strings.Contains(strings.ReplaceAll(section, "\n", " "), "It ends when ") {
		t.Errorf("%s: its section in %s does not say \"It ends when …\"", rule.Alert, page)
	}
}

func TestAlertsSayWhatToDo(t *testing.T) {
	headings, seen := anchors(read(t, page)), map[string]bool{}
	for _, rule := range alertRules(t) {
		if seen[rule.Alert] || rule.Alert == "" {
			t.Errorf("alert %q is there twice, or has no name", rule.Alert)
		}
		seen[rule.Alert] = true
		checkAlert(t, rule)
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s has severity %q", rule.Alert, severity)
		}
		heading, ok := strings.CutPrefix(rule.Annotations["runbook_url"], rulesPage)
		if !ok || heading != strings.ToLower(rule.Alert) || !slices.Contains(headings, heading) {
			t.Errorf("%s: runbook_url %q is not its section in %s", rule.Alert, rule.Annotations["runbook_url"], page)
		}
	}
	for _, heading := range headings {
		if strings.HasPrefix(heading, "coatcheck") && !slices.ContainsFunc(alertRules(t), func(r rule) bool { return strings.ToLower(r.Alert) == heading }) {
			t.Errorf("%s has a section %s, and there is no such alert", page, heading)
		}
	}
}

// dashboard is as much of Grafana's format as matters here.
type dashboard struct {
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"` //nolint:tagliatelle // Grafana writes it so
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []annotation `json:"list"`
	} `json:"annotations"`
}

type panel struct {
	ID         int               `json:"id"`
	Title      string            `json:"title"`
	GridPos    place             `json:"gridPos"` //nolint:tagliatelle // Grafana writes it so
	Datasource map[string]string `json:"datasource"`
	Targets    []target          `json:"targets"`
}

type place struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	Expr       string            `json:"expr"`
	Datasource map[string]string `json:"datasource"`
}

type variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
}

type annotation struct {
	Name string `json:"name"`
	Expr string `json:"expr"`
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatalf("reading %s: %v", dashboardFile, err)
	}
	return d
}

func dashboardQueries(t *testing.T) (queries []query) {
	t.Helper()
	d := readDashboard(t)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, query{dashboardFile + ": " + panel.Title, target.Expr})
		}
	}
	for _, annotation := range d.Annotations.List {
		queries = append(queries, query{dashboardFile + ": " + annotation.Name, annotation.Expr})
	}
	labelValues := regexp.MustCompile(`^label_values\((.*), ([a-z]+)\)$`)
	for _, variable := range d.Templating.List {
		if variable.Type == "query" {
			asked := labelValues.FindStringSubmatch(variable.Definition)
			if asked == nil {
				t.Fatalf("variable %s asks %q", variable.Name, variable.Definition)
			}
			queries = append(queries, query{dashboardFile + ": " + variable.Name, "sum by (" + asked[2] + ") (" + asked[1] + ")"})
		}
	}
	return queries
}

func TestDashboardShowsAllThatThereIsInOrder(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "coatcheck" || d.SchemaVersion < 39 {
		t.Errorf("uid %q, schema %d", d.UID, d.SchemaVersion)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q is where %q is, or beside the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			if p.Datasource["uid"] != "${datasource}" || target.Datasource["uid"] != "${datasource}" {
				t.Errorf("%q asks a data source that the reader cannot choose", p.Title)
			}
		}
	}
	shown := ""
	for _, q := range dashboardQueries(t) {
		shown += q.text + "\n"
	}
	is := open(t)
	for _, name := range metricNames(is.service, is.gateway) {
		if !regexp.MustCompile(`\b` + name + `(_bucket|_sum|_count)?\b`).MatchString(shown) {
			t.Errorf("%s is on no panel", name)
		}
	}
}
