package cli

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// What Prometheus and Grafana of docker-compose.yml are told agrees with what is there: services
// and ports to look at, files of rules, and the data source of the dashboard.
func TestPrometheusAndGrafanaAreToldWhatThereIs(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"docker-compose.yml", prometheusFile, sourceFile, providerFile, dashboardFile} {
		files[name] = readRoot(t, name)
	}
	for _, fault := range observationFaults(files) {
		t.Errorf("fault of the files for observing: %v", fault)
	}
	for _, row := range []struct{ name, file, old, new, fault string }{
		{"a target that is no service", "docker-compose.yml", "\n  coatcheck:\n", "\n  counts:\n", "coatcheck:8080 is no service"},
		{"rules that are not mounted", "docker-compose.yml", ":/etc/prometheus/alerts.yml:ro", ":/etc/prometheus/rules.yml:ro", "alerts.yml is not mounted"},
		{"a server that is no service", sourceFile, "http://prometheus:9090", "http://metrics:9090", "http://metrics:9090 is no service"},
		{"a folder that is not mounted", providerFile, "/etc/dashboards", "/etc/boards", "/etc/boards is not mounted"},
		{"another data source", dashboardFile, `"${datasource}"`, `"elsewhere"`, "elsewhere is no data source"},
	} {
		broken := maps.Clone(files)
		broken[row.file] = strings.Replace(files[row.file], row.old, row.new, 1)
		if broken[row.file] == files[row.file] {
			t.Errorf("%s: %s does not hold %q: this row breaks nothing", row.name, row.file, row.old)
		}
		faults := observationFaults(broken)
		if !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, row.fault) }) {
			t.Errorf("%s: no fault %q, but: %q", row.name, row.fault, faults)
		}
	}
}

const (
	prometheusFile = "deploy/prometheus/prometheus.yml"
	sourceFile     = "deploy/grafana/provisioning/datasources/prometheus.yml"
	providerFile   = "deploy/grafana/provisioning/dashboards/coatcheck.yml"
	dashboardFile  = "deploy/grafana/coatcheck.json"
)

// observation is what Prometheus and Grafana are told, as far as it has to agree with something
// else.
type observation struct {
	Rules  []string `yaml:"rule_files"`
	Scrape []struct {
		Static []struct {
			Targets []string `yaml:"targets"`
		} `yaml:"static_configs"`
	} `yaml:"scrape_configs"`
	Sources []struct {
		UID string `yaml:"uid"`
		URL string `yaml:"url"`
	} `yaml:"datasources"`
	Providers []struct {
		Options struct {
			Path string `yaml:"path"`
		} `yaml:"options"`
	} `yaml:"providers"`
}

func observationFaults(files map[string]string) (faults []string) {
	var composed composition
	var told observation
	if err := yaml.Load([]byte(files["docker-compose.yml"]), &composed); err != nil {
		return []string{err.Error()}
	}
	for _, name := range []string{prometheusFile, sourceFile, providerFile} {
		if err := yaml.Unmarshal([]byte(files[name]), &told); err != nil {
			return []string{name + ": " + err.Error()}
		}
	}
	served := func(address string) bool { // host:port of a service
		host, port, _ := strings.Cut(address, ":")
		s := composed.Services[host]
		return s != nil && slices.ContainsFunc(s.Ports, func(published string) bool { return portOf(published) == port })
	}
	mounted := func(at string) bool {
		for _, s := range composed.Services {
			if slices.ContainsFunc(s.Volumes, func(mount string) bool { return strings.Contains(mount, ":"+at) }) {
				return true
			}
		}
		return false
	}
	targets := 0
	for _, scrape := range told.Scrape {
		for _, static := range scrape.Static {
			for _, target := range static.Targets {
				targets++
				if !served(target) && !strings.HasPrefix(target, "localhost:") {
					faults = append(faults, prometheusFile+": "+target+" is no service")
				}
			}
		}
	}
	if targets == 0 || len(told.Rules) == 0 || len(told.Sources) == 0 || len(told.Providers) == 0 {
		faults = append(faults, "nothing to look at: does this test still read the files?")
	}
	for _, rules := range told.Rules {
		if !mounted("/etc/prometheus/" + strings.TrimPrefix(rules, "/etc/prometheus/")) {
			faults = append(faults, prometheusFile+": "+rules+" is not mounted")
		}
	}
	var known []string
	for _, source := range told.Sources {
		known = append(known, source.UID)
		if !served(strings.TrimPrefix(source.URL, "http://")) {
			faults = append(faults, sourceFile+": "+source.URL+" is no service")
		}
	}
	for _, provider := range told.Providers {
		if !mounted(provider.Options.Path + "/") {
			faults = append(faults, providerFile+": "+provider.Options.Path+" is not mounted")
		}
	}
	for _, uid := range sourcesOf(files[dashboardFile]) {
		if !slices.Contains(known, uid) && !variableForm.MatchString(uid) && uid != "-- Grafana --" {
			faults = append(faults, dashboardFile+": "+uid+" is no data source")
		}
	}
	return faults
}

// variableForm is a data source that the reader of a dashboard chooses.
var variableForm = regexp.MustCompile(`^\$\{[A-Za-z_]+\}$|^\$[A-Za-z_]+$`)

// sourcesOf lists the uid of each "datasource" in a dashboard.
func sourcesOf(dashboard string) (uids []string) {
	var whole any
	if err := json.Unmarshal([]byte(dashboard), &whole); err != nil {
		return []string{err.Error()}
	}
	var look func(any)
	look = func(part any) {
		switch part := part.(type) {
		case []any:
			for _, one := range part {
				look(one)
			}
		case map[string]any:
			if source, ok := part["datasource"].(map[string]any); ok {
				uid, _ := source["uid"].(string)
				uids = append(uids, uid)
			}
			for _, one := range part {
				look(one)
			}
		}
	}
	look(whole)
	return uids
}
