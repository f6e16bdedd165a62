package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const chart = "deploy/helm/coatcheck"

// tested is a folder with sets of values, and what the chart makes of each. make deploy-check has
// Helm make the same.
const tested = "deploy/helm/tested"

// chartValues are the sets of values, by name.
func chartValues(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, tested, "*.values.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d sets of values, %v", len(files), err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".values.yaml")
		var values map[string]any
		expect.NoError(t, "parse the YAML", yaml.Unmarshal([]byte(readRoot(t, tested+"/"+filepath.Base(file))), &values))
		all[name] = values
	}
	return all
}

// What the chart makes of each set of values is what stands beside it. With -update it is written
// there.
func TestChartMakesWhatStandsBesideItsValues(t *testing.T) {
	for name, values := range chartValues(t) {
		file := tested + "/" + name + ".rendered.yaml"
		rendered := renderChart(t, values)
		if *update {
			expect.NoError(t, "write the file", os.WriteFile(filepath.Join(root, file), []byte(rendered), 0o600))
		} else if rendered != readRoot(t, file) {
			t.Errorf("%s is not what the chart makes: go test ./cmd/coatcheck/internal/cli -run Chart -update writes it anew. Now it makes\n%s", file, rendered)
		}
	}
}

// The chart's values are what its schema allows, and values that would not do what they say are
// refused.
func TestValuesOfTheChart(t *testing.T) {
	schema := chartSchema(t)
	for name, values := range chartValues(t) {
		if err := schema.Validate(plain(t, withValues(ownValues(t), values))); err != nil {
			t.Errorf("the schema refuses the values of %s: %v", name, err)
		}
	}
	for name, values := range map[string]map[string]any{
		"misspelled":             {"replica": 3},
		"nobody":                 {"replicas": 0},
		"image of the day":       {"image": map[string]any{"tag": "latest"}},
		"half of a digest":       {"image": map[string]any{"digest": "sha256:0123"}},
		"password in the open":   {"settings": map[string]any{"redis": "redis://:secret@redis"}},
		"setting of the chart":   {"settings": map[string]any{"listen": "0.0.0.0:80"}},
		"port that needs root":   {"port": 443},
		"setting like a key":     {"settings": map[string]any{"LOG_LEVEL": "debug"}},
		"setting that is none":   {"settings": map[string]any{"akc": 2}},
		"gateway's that is none": {"gateway": map[string]any{"settings": map[string]any{"id-pool": "orders"}}},
		"value of no setting":    {"settings": map[string]any{"restarts": "nonsense"}},
		"part of no pool":        {"pools": map[string]any{"orders": map[string]any{"layuot": "41/5/5/12"}}},
		"memory without a unit":  {"goMemLimit": "lots"},
		"stop that is cut off":   {"settings": map[string]any{"stop-timeout": "5m"}},
		"stop that is too soon":  {"requestSeconds": 29},
		"gateway of nothing":     {"gateway": map[string]any{"replicas": 1}},
		"own setting by name":    {"extraEnv": []any{map[string]any{"name": "COATCHECK_LISTEN", "value": "0.0.0.0:80"}}},
		"eviction of none":       {"podDisruptionBudget": map[string]any{"unhealthyPodEvictionPolicy": "Never"}},
		"more than all work":     {"autoscaling": map[string]any{"cpuPercent": 101}},
		"password of a gateway":  {"gateway": map[string]any{"settings": map[string]any{"redis": "redis://:secret@redis"}}},
	} {
		if schema.Validate(plain(t, withValues(ownValues(t), values))) == nil {
			t.Errorf("%s: the schema allows %v", name, values)
		}
	}
}

// The schema has the names of the program's settings, except those that the chart sets itself and
// those that belong in a Secret. With -update the test writes them into it.
func TestChartTakesTheSettingsThatThereAre(t *testing.T) {
	file := chart + "/values.schema.json"
	text := readRoot(t, file)
	want := text
	service, gateway := config.ServiceSettings(&config.Service{}), config.GatewaySettings(&config.Gateway{Service: &config.Service{}})
	for i, table := range [][]*config.Setting{service, gateway} {
		chosen := [][]string{
			{"listen", "access", "tls-cert", "tls-key", "pools", "drain-delay", "stop-timeout", "request-timeout"},
			{"listen", "admin-listen", "insecure", "routes", "upstream", "drain-delay", "stop-timeout"},
		}[i]
		var names, values []string
		for _, s := range table {
			if s.Redact == nil && !slices.Contains(chosen, s.Name) {
				names = append(names, strconv.Quote(s.Name))
				if len(s.Choices) > 0 {
					values = append(values, fmt.Sprintf(`%q: {"enum": ["%s"]}`, s.Name, strings.Join(s.Choices, `", "`)))
				}
			}
		}
		slices.Sort(names)
		slices.Sort(values)
		parts := strings.SplitAfter(want, `"propertyNames": {"enum": [`)
		expect.MustEqual(t, "lists of names in the schema", len(parts), 3)
		_, rest, _ := strings.Cut(parts[i+1], "]")
		before, after, _ := strings.Cut(rest, "\"properties\": {")
		_, after, _ = strings.Cut(after, "},\n")
		parts[i+1] = strings.Join(names, ", ") + "]" + before + "\"properties\": {" + strings.Join(values, ", ") + "},\n" + after
		want = strings.Join(parts, "")
	}
	if *update {
		expect.NoError(t, "write the file", os.WriteFile(filepath.Join(root, file), []byte(want), 0o600))
	} else if want != text {
		t.Errorf("%s does not have the settings of the program: go test ./cmd/coatcheck/internal/cli -run ChartTakes -update writes them", file)
	}
}

// The rules and the dashboard are those of Prometheus and Grafana without the chart.
func TestChartHasTheAlertsAndTheDashboard(t *testing.T) {
	text := renderChart(t, map[string]any{"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}}, "dashboard": map[string]any{"enabled": true}})
	if faults := manifestFaults(text); len(faults) > 0 {
		t.Errorf("faults %q", faults)
	}
	var rules, own any
	var dashboard string
	for one := range strings.SplitSeq(text, "\n---\n") {
		var object any
		expect.NoError(t, "parse the YAML", yaml.Unmarshal([]byte(one), &object))
		switch is := (node{object}); {
		case is.at("kind").text() == "PrometheusRule" && is.at("metadata", "labels", "release").text() == "prometheus":
			rules = is.at("spec").is
		case is.at("metadata", "labels", "grafana_dashboard").text() == "1":
			dashboard = is.at("data", "coatcheck.json").text()
		}
	}
	expect.NoError(t, "parse the YAML", yaml.Unmarshal([]byte(readRoot(t, "deploy/prometheus/alerts.yml")), &own))
	if diff := cmp.Diff(own, rules); diff != "" {
		t.Errorf("the chart's rules are not those of alerts.yml: %s", diff)
	}
	if want := readRoot(t, "deploy/grafana/coatcheck.json"); strings.TrimSpace(dashboard) != strings.TrimSpace(want) {
		t.Errorf("the chart's dashboard has %d bytes, and deploy/grafana/coatcheck.json %d, or others", len(dashboard), len(want))
	}
}

// The notes of the chart name each file of the Secrets that its pods mount, with the commands that
// make them.
func TestChartNotesExplainTheSecrets(t *testing.T) {
	for _, row := range []struct {
		values map[string]any
		want   []string
	}{
		{nil, []string{
			"secret generic coatcheck --from-file=coatcheck.yaml --from-file=keys.yaml --from-file=redis-ca.pem\n",
			"secret tls coatcheck-tls --cert=tls.pem --key=tls.key\n", "coatcheck.yaml   redis: the URL", "keys.yaml        who may do what", "shop-coatcheck.coatcheck.svc:\n",
		}},
		{chartValues(t)["changed"], []string{
			"secret generic settings --from-file=coatcheck.yaml --from-file=keys.yaml --from-file=gateway.yaml\n", "gateway.yaml     redis and ack",
			"secret generic scrape --from-literal=api-key=", "ask http://shop-coatcheck-gateway.coatcheck.svc:9081 instead",
		}},
		{chartValues(t)["mesh"], []string{"is at http://shop-coatcheck", "It needs a Secret,", "--from-literal=api-key=cck_…\n"}},
	} {
		_, notes := renderFiles(t, row.values)
		expect.Contains(t, "notes of the chart", notes, row.want...)
	}
}

func chartSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := jsonschema.UnmarshalJSON(strings.NewReader(readRoot(t, chart+"/values.schema.json")))
	expect.NoError(t, "parse the JSON", err)
	compiler := jsonschema.NewCompiler()
	expect.NoError(t, "add the schema", compiler.AddResource("values.schema.json", text))
	schema, err := compiler.Compile("values.schema.json")
	expect.NoError(t, "compile the schema", err)
	return schema
}

// ownValues are those of values.yaml.
func ownValues(t *testing.T) (values map[string]any) {
	t.Helper()
	expect.NoError(t, "parse the YAML", yaml.Unmarshal([]byte(readRoot(t, chart+"/values.yaml")), &values))
	return values
}

// plain is a value as JSON has it.
func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	expect.NoError(t, "write the JSON", err)
	back, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	expect.NoError(t, "parse the JSON", err)
	return back
}

// renderChart makes a chart's objects as Helm does, as far as this chart goes: with Go's templates,
// and those few functions of Helm's that it uses. make deploy-check compares it with Helm.
func renderChart(t *testing.T, values map[string]any) string {
	t.Helper()
	objects, _ := renderFiles(t, values)
	return objects
}

func renderFiles(t *testing.T, values map[string]any) (objects, notes string) {
	t.Helper()
	var about struct {
		Name       string `yaml:"name"`
		Version    string `yaml:"version"`
		AppVersion string `yaml:"appVersion"` //nolint:tagliatelle // Helm's name
	}
	expect.NoError(t, "parse the YAML", yaml.Unmarshal([]byte(readRoot(t, chart+"/Chart.yaml")), &about))
	files, err := filepath.Glob(filepath.Join(root, chart, "templates", "*"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(chartFunctions(all))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = all.New(filepath.Base(file)).Parse(string(text))
		}
		expect.NoError(t, "parse "+file, err)
	}
	data := map[string]any{
		"Values": withValues(ownValues(t), values), "Chart": about,
		"Release": map[string]any{"Name": "shop", "Namespace": "coatcheck", "Service": "Helm"}, "Files": chartFiles{},
	}
	var rendered strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byName(all))) {
		text := &strings.Builder{}
		if err := all.ExecuteTemplate(text, name, data); err != nil {
			t.Fatalf("render %s: %v", name, err)
		}
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text.String()) != "" {
			rendered.WriteString("---\n" + text.String())
		} else if name == "NOTES.txt" {
			notes = text.String()
		}
	}
	return rendered.String(), notes
}

// byName are the templates that are files.
func byName(all *template.Template) map[string]bool {
	names := map[string]bool{}
	for _, one := range all.Templates() {
		if strings.Contains(one.Name(), ".yaml") || strings.HasSuffix(one.Name(), ".txt") {
			names[one.Name()] = true
		}
	}
	return names
}

// chartFiles are those of the chart that are no templates.
type chartFiles struct{}

func (chartFiles) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, chart, name))
	return string(text), err
}

func chartFunctions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var text strings.Builder
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"nindent": func(n int, text string) string {
			margin := "\n" + strings.Repeat(" ", n)
			return margin + strings.ReplaceAll(text, "\n", margin)
		},
		"toYaml": asYAML,
		"toJson": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"dict": func(name string, value any) map[string]any { return map[string]any{name: value} },
		"add": func(numbers ...int) (sum int) {
			for _, n := range numbers {
				sum += n
			}
			return sum
		},
		"toString": func(value any) string { return fmt.Sprint(value) },
		"quote":    func(value any) string { return strconv.Quote(fmt.Sprint(value)) },
		"default": func(otherwise, value any) any {
			if value == nil || value == "" {
				return otherwise
			}
			return value
		},
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"trimSuffix": func(end, text string) string { return strings.TrimSuffix(text, end) },
		"trunc":      func(n int, text string) string { return text[:min(n, len(text))] },
		"upper":      strings.ToUpper,
		"replace":    func(before, after, text string) string { return strings.ReplaceAll(text, before, after) },
	}
}
