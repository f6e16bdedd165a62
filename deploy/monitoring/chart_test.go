package monitoring_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"go.yaml.in/yaml/v4"
)

const (
	chartRules   = "../helm/coatcheck/files/alerts.yml" // what the chart's PrometheusRule has
	chartObjects = "../helm/tested/%s.rendered.yaml"    // what the chart makes of sets of values
	scraped      = 15 * time.Second
)

// now is when the rules are asked: after an hour of samples.
var now = time.Unix(3600, 0)

// Whoever installs the chart as release "shop" learns of each target of its that is down, and of no
// other's.
func TestAlertsKnowTheTargetsOfTheChart(t *testing.T) {
	for name, want := range map[string][]string{
		"mesh":    {"shop-coatcheck", "coatcheck/shop-coatcheck-gateway"},
		"changed": {"shop-coatcheck", "coatcheck/shop-coatcheck-gateway"},
	} {
		targets := chartTargets(t, name)
		var jobs []string
		for _, target := range targets {
			jobs = append(jobs, target["job"])
		}
		if !slices.Equal(jobs, want) {
			t.Fatalf("%s: Prometheus asks %q, want %q", name, jobs, want)
		}
		for _, target := range targets {
			down := series{metric: "up", of: target}
			others := series{metric: "up", of: map[string]string{"job": "coatcheck/redis-exporter", "instance": "x"}}
			if got := firing(t, down, others); !slices.Equal(got["CoatcheckDown"], []string{target["instance"]}) || got["CoatcheckNotScraped"] != nil {
				t.Errorf("%s: %s is down, and so is a target of others: firing %v", name, target["job"], got)
			}
			if got := firing(t, series{metric: "up", of: target, start: 1}); len(got) > 0 {
				t.Errorf("%s: %s is up: firing %v", name, target["job"], got)
			}
		}
	}
	if got := firing(t); len(got) != 1 || got["CoatcheckNotScraped"] == nil {
		t.Errorf("nothing is asked: firing %v", got)
	}
}

// Rules that sum by job or instance find what the chart's pods count.
func TestAlertsFireForThePodsOfTheChart(t *testing.T) {
	targets := chartTargets(t, "changed")
	service, proxy := targets[0], targets[1]
	for _, row := range []struct {
		alert, metric string
		target        map[string]string
		label, value  string
		start, slope  float64
	}{
		{"CoatcheckRequestsFail", "coatcheck_http_requests_total", service, "status", "503", 0, 1},
		{"CoatcheckInternalErrors", "coatcheck_http_problems_total", service, "code", "internal-error", 0, 1},
		{"CoatcheckRedisUnavailable", "coatcheck_redis_calls_total", proxy, "outcome", "unavailable", 0, 1},
		{"CoatcheckOutcomesUnknown", "coatcheck_redis_calls_total", service, "outcome", "unknown", 0, 1},
		{"CoatcheckReplicasBehind", "coatcheck_redis_wait_shortfalls_total", proxy, "", "", 0, 1},
		{"CoatcheckConnectionsShort", "coatcheck_redis_pool_timeouts_total", service, "", "", 0, 1},
		{"CoatcheckAnswersNotRecorded", "coatcheck_token_completions_total", proxy, "outcome", "gone", 0, 1},
		{"CoatcheckWorkerIdsExhausted", "coatcheck_worker_grants_total", service, "outcome", "exhausted", 0, 1},
		{"CoatcheckLayoutEnds", "coatcheck_worker_layout_left_seconds", service, "", "", 86400 * 300, 0},
		{"CoatcheckStampsNothing", "coatcheck_worker_stamping", service, "state", "waiting", 1, 0},
		{"CoatcheckLockWaitsLong", "coatcheck_lock_longest_wait_seconds", service, "", "", 21, 0},
		{"CoatcheckCountersRefused", "coatcheck_counter_openings_total", service, "outcome", "behind", 0, 1},
		{"CoatcheckSegmentsWentBack", "coatcheck_segment_went_back_total", service, "", "", 0, 1},
		{"CoatcheckGatewayUpstreamFails", "coatcheck_gateway_upstream_failures_total", proxy, "kind", "refused", 0, 10},
		{"CoatcheckGatewayRoutesRefused", "coatcheck_gateway_reloads_total", proxy, "result", "failed", 0, 1},
	} {
		of := maps.Clone(row.target)
		if row.label != "" {
			of[row.label] = row.value
		}
		up := series{metric: "up", of: row.target, start: 1}
		if got := firing(t, up, series{metric: row.metric, of: of, start: row.start, slope: row.slope}); got[row.alert] == nil {
			t.Errorf("%s does not fire for %v; firing %v", row.alert, of, got)
		}
	}
}

// A client waits for ten minutes, in one request after the other. Some scrapes fall between two.
func TestAlertFiresForAWaiterThatAsksAgainAndAgain(t *testing.T) {
	of := map[string]string{"job": "coatcheck", "instance": "10.0.0.1:8080"}
	values := make([]float64, int(now.Unix()/int64(scraped.Seconds()))+1)
	for i := range 40 {
		if i%7 > 0 {
			values[len(values)-40+i] = float64(i) * scraped.Seconds()
		}
	}
	up := series{metric: "up", of: of, start: 1}
	longest := series{metric: "coatcheck_lock_longest_wait_seconds", of: of, values: values}
	if got := firing(t, up, longest); got["CoatcheckLockWaitsLong"] == nil {
		t.Errorf("CoatcheckLockWaitsLong does not fire; firing %v", got)
	}
}

// object is one of Kubernetes, as far as Prometheus's operator reads it.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Selector  any    // a Service has labels there, others matchLabels
		JobLabel  string `yaml:"jobLabel"` //nolint:tagliatelle // the operator's name
		Ports     []struct{ Name, TargetPort string }
		Endpoints []struct{ Port string }
		Pods      []struct{ Port string } `yaml:"podMetricsEndpoints"` //nolint:tagliatelle // the operator's name
		Template  struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct {
					Name  string
					Ports []struct{ Name string }
				}
			}
		}
	}
}

// chartTargets are the labels of what Prometheus asks where the chart's monitors lead it: a
// ServiceMonitor names its targets by the Service, and a PodMonitor by its own namespace and name.
func chartTargets(t *testing.T, values string) (targets []map[string]string) {
	t.Helper()
	objects := chartOf(t, values)
	for _, monitor := range objects {
		switch monitor.Kind {
		case "ServiceMonitor":
			for _, service := range objects {
				if service.Kind == "Service" && selects(monitor.Spec.Selector, service.Metadata.Labels) && hasPort(service, monitor.Spec.Endpoints[0].Port) {
					targets = append(targets, targetOf(service.Metadata.Name, monitor.Spec.Endpoints[0].Port, len(targets)))
				}
			}
		case "PodMonitor":
			for _, pods := range objects {
				if selects(monitor.Spec.Selector, pods.Spec.Template.Metadata.Labels) && hasPort(pods, monitor.Spec.Pods[0].Port) {
					targets = append(targets, targetOf("coatcheck/"+monitor.Metadata.Name, monitor.Spec.Pods[0].Port, len(targets)))
				}
			}
		}
	}
	slices.SortFunc(targets, func(a, b map[string]string) int { return -strings.Compare(a["job"], b["job"]) })
	return targets
}

func targetOf(job, port string, n int) map[string]string {
	return map[string]string{"job": job, "instance": fmt.Sprintf("10.0.0.%d:%s", n+1, port), "namespace": "coatcheck", "endpoint": port, "pod": fmt.Sprintf("pod-%d", n)}
}

func chartOf(t *testing.T, values string) (objects []object) {
	t.Helper()
	loader, err := yaml.NewLoader(bytes.NewReader([]byte(read(t, fmt.Sprintf(chartObjects, values)))))
	for err == nil {
		var one object
		if err = loader.Load(&one); err == nil {
			objects = append(objects, one)
		}
	}
	if !errors.Is(err, io.EOF) || len(objects) == 0 {
		t.Fatalf("the objects of the chart: got %d, and the error %v, want some and the end", len(objects), err)
	}
	return objects
}

// selects reports whether a monitor's selector fits labels.
func selects(selector any, of map[string]string) bool {
	must, _ := selector.(map[string]any)["matchLabels"].(map[string]any)
	for name, value := range must {
		if of[name] != value {
			return false
		}
	}
	return len(must) > 0
}

// hasPort reports whether a Service, or a container of pods, has a port of this name.
func hasPort(one object, name string) bool {
	for _, port := range one.Spec.Ports {
		if port.Name == name {
			return true
		}
	}
	for _, container := range one.Spec.Template.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == name {
				return true
			}
		}
	}
	return false
}

// firing has Prometheus's engine ask all rules of the chart, and returns the instances for which
// each alert fires now: those for which its expression has held for as long as it waits.
func firing(t *testing.T, all ...series) map[string][]string {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer func() { _ = engine.Close() }()
	var file rules
	if err := yaml.Unmarshal([]byte(read(t, chartRules)), &file); err != nil {
		t.Fatalf("reading %s: %v", chartRules, err)
	}
	found := map[string][]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			for _, sample := range heldFor(t, engine, memory(all), rule, now) {
				found[rule.Alert] = append(found[rule.Alert], sample.Metric.Get("instance"))
			}
		}
	}
	return found
}

// heldFor returns what a rule's expression finds at a time, and has found for as long as it waits.
func heldFor(t *testing.T, engine *promql.Engine, from storage.Queryable, rule rule, until time.Time) (found promql.Vector) {
	t.Helper()
	var wait model.Duration
	if rule.For != "" {
		var err error
		if wait, err = model.ParseDuration(rule.For); err != nil {
			t.Fatalf("%s: how long it has to hold: %v", rule.Alert, err)
		}
	}
	held := map[string]int{}
	times := 0
	var last promql.Vector
	for at := until.Add(-time.Duration(wait)); !at.After(until); at = at.Add(scraped) {
		times++
		query, err := engine.NewInstantQuery(t.Context(), from, nil, rule.Expr, at)
		if err != nil {
			t.Fatalf("%s: its query: %v", rule.Alert, err)
		}
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: what its query finds: %v", rule.Alert, err)
		}
		last = slices.Clone(vector)
		for _, sample := range vector {
			held[sample.Metric.String()]++
		}
		query.Close()
	}
	for _, sample := range last {
		if held[sample.Metric.String()] == times {
			found = append(found, sample)
		}
	}
	return found
}
