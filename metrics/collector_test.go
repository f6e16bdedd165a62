package metrics_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// A program with a registry of its own, which has metrics of Go already, has ours in it too:
// replays, mismatches, doubt and those that met a running one are counted without the service.
func TestApplicationHasOurMetricsInItsOwnRegistry(t *testing.T) {
	ctx := t.Context()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	counted := metrics.NewStore("1.4.0")
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{counted.Observer()}})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	tokens := idempotency.New(store, idempotency.Config{})
	defer tokens.Close(ctx)
	var pay http.Handler
	counted.Show(metrics.Program{Store: store, Tokens: tokens})
	registry.MustRegister(counted.Collector())
	pay = tokens.Middleware(idempotency.Route{Name: "pay"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key == "busy" {
			again(pay, "busy", "body")
		} else if key == "doubt" {
			attempt, _ := idempotency.FromContext(r.Context())
			attempt.Abandon()
		}
		fmt.Fprint(w, "paid")
	}))
	for _, request := range []struct{ key, body string }{
		{"replay", "body"}, {"replay", "body"}, {"replay", "another body"}, {"doubt", "body"}, {"doubt", "body"}, {"busy", "body"},
	} {
		again(pay, request.key, request.body)
	}
	metricsConnected(t, registry)
	for outcome, want := range map[string]float64{"granted": 3, "replay": 1, "mismatch": 1, "in_doubt": 1, "busy": 1} {
		expect.Equal(t, "claims with the outcome "+outcome, claims(t, registry, outcome), want)
	}
}

func again(handler http.Handler, key, body string) {
	request := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))
	request.Header.Set("Idempotency-Key", key)
	handler.ServeHTTP(httptest.NewRecorder(), request)
}

// metricsConnected shows the metrics of the program, whose routes stand where doubt is.
func metricsConnected(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	families, err := registry.Gather()
	expect.Error(t, "Gather", err, nil)
	names, scopes := map[string]bool{}, map[string]float64{}
	for _, family := range families {
		names[family.GetName()] = true
		for _, series := range family.GetMetric() {
			if family.GetName() == "coatcheck_operations_in_doubt" {
				scopes[series.GetLabel()[0].GetValue()] = series.GetGauge().GetValue()
			}
		}
	}
	for _, name := range []string{"go_goroutines", "coatcheck_token_claims_total", "coatcheck_redis_pool_connections"} {
		expect.Equal(t, name+" is in the registry", names[name], true)
	}
	expect.Equal(t, "process_cpu_seconds_total is in the registry", names["process_cpu_seconds_total"], false)
	expect.Equal(t, "operations in doubt by scope", scopes, map[string]float64{"pay": 1, "other": 0, "unread": 0})
}

// A program without tokens of its own sees what is in doubt in its store as well.
func TestProgramWithoutTokensShowsWhatIsInDoubtInItsStore(t *testing.T) {
	counted := metrics.NewStore("1.4.0")
	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: "embedded:", Observers: []observe.Observer{counted.Observer()}})
	expect.MustEqual(t, "error of OpenConfig", err, nil)
	t.Cleanup(func() { _ = store.Close() })
	_, _, known := counted.InDoubt()
	expect.Equal(t, "known before Show", known, false)
	counted.LookAgain() // at nothing
	counted.Show(metrics.Program{Store: store})
	operations, since, known := counted.InDoubt()
	expect.Equal(t, "operations in doubt", operations, 0)
	expect.Equal(t, "known, and since no time", known && since.IsZero(), true)
	for _, metric := range counted.Listed() {
		if strings.Contains(metric.Name, "worker_ring") || strings.Contains(metric.Name, "segment") {
			t.Errorf("%s is shown of a program without worker ids and segments", metric.Name)
		}
	}
}

func claims(t *testing.T, registry *prometheus.Registry, outcome string) float64 {
	t.Helper()
	families, err := registry.Gather()
	expect.Error(t, "Gather", err, nil)
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if family.GetName() == "coatcheck_token_claims_total" && series.GetLabel()[0].GetValue() == outcome {
				return series.GetCounter().GetValue()
			}
		}
	}
	return -1
}
