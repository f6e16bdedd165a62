package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coatcheck/coatcheck/metrics"
)

// measures are the gateway's metrics. A label is a pattern or our word, never a client's text.
type measures struct {
	*metrics.Store

	requests *prometheus.CounterVec   // by route and outcome
	failures *prometheus.CounterVec   // by kind
	reloads  *prometheus.CounterVec   // by result
	duration *prometheus.HistogramVec // by route
	inFlight prometheus.Gauge
	routes   prometheus.Gauge
	open     prometheus.Gauge
	passing  *prometheus.GaugeVec // by whether they match more than one path
	loaded   prometheus.Gauge
	resolved *prometheus.CounterVec   // by what the service said
	doubted  *prometheus.HistogramVec // how long
}

func newMeasures(m *metrics.Store) *measures {
	if m == nil {
		m = metrics.NewStore("")
	}
	g := &measures{
		Store: m,
		requests: m.Counter("coatcheck_gateway_requests_total", "Requests by route (- for all others) and by how they came out.",
			"route", "outcome"),
		failures: m.Counter("coatcheck_gateway_upstream_failures_total",
			"Requests to the upstream that got no whole answer, by how they failed.", "kind"),
		reloads: m.Counter("coatcheck_gateway_reloads_total", "Readings of the routes file, by result.", "result"),
		duration: m.Histogram("coatcheck_gateway_request_duration_seconds",
			"How long requests took, by route (- for all others).", metrics.Patient, "route"),
		inFlight: m.Gauge("coatcheck_gateway_requests_in_flight", "Requests under way.").WithLabelValues(),
		routes:   m.Gauge("coatcheck_gateway_routes", "Guarded routes in force.").WithLabelValues(),
		open: m.Gauge("coatcheck_gateway_unmatched_pass",
			"1 while unsafe requests that no route names pass (unmatched: pass), 0 while they are refused.").WithLabelValues(),
		passing: m.Gauge("coatcheck_gateway_unguarded_routes",
			"Patterns of unsafe requests that pass unguarded (guard: false), by whether they match more than one path.", "wide"),
		loaded: m.Gauge("coatcheck_gateway_routes_loaded_timestamp_seconds",
			"When the routes in force were read, in seconds since 1970.").WithLabelValues(),
		resolved: m.Counter("coatcheck_gateway_resolutions_total",
			"Questions to the service what became of an operation in doubt, by its answer; in_vain: it is asked again.", "decision"),
		doubted: m.Histogram("coatcheck_gateway_doubt_duration_seconds",
			"How long operations were in doubt until the service said what became of them.", metrics.Patient),
	}
	g.name()
	return g
}

// name creates every series without a route, so that its rate begins at 0.
func (m *measures) name() {
	for _, kind := range failures {
		m.failures.WithLabelValues(string(kind))
	}
	for _, decision := range []string{"completed", "not_begun", "in_vain"} {
		m.resolved.WithLabelValues(decision)
	}
	for _, result := range []string{"ok", "failed"} {
		m.reloads.WithLabelValues(result)
	}
}

// use replaces the routes. It removes the series of those that are gone.
func (m *measures) use(routes Routes, before Routes) {
	m.routes.Set(float64(len(routes.Guarded())))
	m.open.Set(0)
	if routes.Open {
		m.open.Set(1)
	}
	all, wide := routes.Unguarded()
	m.passing.WithLabelValues("true").Set(float64(len(wide)))
	m.passing.WithLabelValues("false").Set(float64(len(all) - len(wide)))
	m.loaded.Set(float64(time.Now().Unix()))
	stays := map[string]bool{}
	for _, route := range routes.List {
		stays[route.Name] = true
		for _, is := range outcomes {
			if is != own {
				m.requests.WithLabelValues(route.Name, string(is))
			}
		}
	}
	for _, route := range before.List {
		if !stays[route.Name] {
			m.requests.DeletePartialMatch(prometheus.Labels{"route": route.Name})
			m.duration.DeletePartialMatch(prometheus.Labels{"route": route.Name})
		}
	}
}
