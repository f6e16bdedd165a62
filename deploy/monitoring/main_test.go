// Package monitoring_test compares the files for Prometheus and Grafana under deploy, and
// docs/metrics.md, with the metrics of the programs. It is a module of its own, so that programs
// that import coatcheck do not inherit the parser of queries.
package monitoring_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	_ "github.com/coatcheck/coatcheck/embedded" // the scheme embedded:
	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// programs are the metrics of each kind of program, with all that it has.
type programs struct{ service, gateway, library *metrics.Registry }

// open starts a service, a gateway and a Go program without clients.
func open(t *testing.T) programs {
	t.Helper()
	store, err := redisstore.Open(t.Context(), "embedded:")
	if err != nil {
		t.Fatalf("opening a store: %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return openOn(t, store)
}

// openOn starts them on a store.
func openOn(t *testing.T, store *redisstore.Store) programs {
	t.Helper()
	service, proxy := metrics.NewService("v1.2.3"), metrics.NewStore("v1.2.3")
	s := server.New(server.Config{Store: store, Metrics: service})
	t.Cleanup(func() { _ = s.Close(context.Background()) })

	routes := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(routes, []byte("routes:\n  - match: \"POST /payments\"\n    accept: either\n"), 0o600); err != nil {
		t.Fatalf("writing the routes: %v", err)
	}
	upstream, err := gateway.ParseUpstream("http://127.0.0.1:1")
	if err != nil {
		t.Fatalf("the upstream: %v", err)
	}
	g, err := gateway.New(gateway.Config{Store: store, Upstream: upstream, RoutesFile: routes, Metrics: proxy})
	if err != nil {
		t.Fatalf("a gateway: %v", err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return programs{service.Registry, proxy.Registry, libraryOn(store).Registry}
}

// libraryOn is a Go program that uses each part of coatcheck on a store.
func libraryOn(store *redisstore.Store) *metrics.Store {
	library, source := metrics.NewStore("v1.2.3"), redissource.New(store, redissource.Config{})
	library.Show(metrics.Program{
		Store: store, Tokens: idempotency.New(store, idempotency.Config{}), Workers: workerlease.New(store, workerlease.Config{}),
		Counters: counter.New(store, counter.Config{}), Segments: segment.New(source, segment.Config{}), Source: source,
	})
	return library
}

// known is what queries may name: metrics by what they are called in queries, with their labels,
// and the values of a label where there are only some.
type known map[string]map[string][]string

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)
	pair       = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// open labels have values that only requests bring.
var openLabels = []string{"method", "status"}

// known lists all of it. Labels that Prometheus adds to every series are among them.
func (p programs) known() known {
	all := known{"up": {}}
	for _, registry := range []*metrics.Registry{p.service, p.gateway, p.library} {
		for _, metric := range registry.Listed() {
			names := []string{metric.Name}
			if metric.Kind == metrics.KindHistogram {
				names = []string{metric.Name + "_bucket", metric.Name + "_sum", metric.Name + "_count"}
				all.add(names[0], "le")
			}
			for _, name := range names {
				all.add(name, metric.Labels...)
			}
		}
		for _, line := range sampleLine.FindAllStringSubmatch(scrape(registry), -1) {
			all.add(line[1])
			for _, label := range pair.FindAllStringSubmatch(line[2], -1) {
				if !slices.Contains(openLabels, label[1]) {
					all[line[1]][label[1]] = append(all[line[1]][label[1]], label[2])
				}
			}
		}
	}
	for name := range all {
		all.add(name, "job", "instance")
	}
	return all
}

func (k known) add(name string, labels ...string) {
	if k[name] == nil {
		k[name] = map[string][]string{}
	}
	for _, label := range labels {
		if _, there := k[name][label]; !there {
			k[name][label] = nil
		}
	}
}

func scrape(registry *metrics.Registry) string {
	recorder := httptest.NewRecorder()
	registry.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return recorder.Body.String()
}

// metricNames lists the metrics that are ours, sorted.
func metricNames(registries ...*metrics.Registry) []string {
	names := map[string]bool{}
	for _, registry := range registries {
		for _, metric := range registry.Listed() {
			names[metric.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return string(text)
}

// anchors are what links to the headings of a page end in.
func anchors(page string) (found []string) {
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			found = append(found, strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-"))
		}
	}
	return found
}
