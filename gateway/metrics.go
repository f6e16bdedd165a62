package gateway

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the gateway's, in a registry of their own. A label is a route's pattern or a word of ours, never what a client sent.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec   // by route and outcome
	failures *prometheus.CounterVec   // by kind
	reloads  *prometheus.CounterVec   // by result
	duration *prometheus.HistogramVec // by route
	inFlight prometheus.Gauge
	routes   prometheus.Gauge
	loaded   prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coatcheck_gateway_requests_total", Help: "Requests by guarded route (- for all others) and by how they came out.",
		}, []string{"route", "outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coatcheck_gateway_upstream_failures_total", Help: "Requests to the upstream that got no whole answer, by how they failed.",
		}, []string{"kind"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coatcheck_gateway_reloads_total", Help: "Readings of the routes file, by result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coatcheck_gateway_request_duration_seconds", Help: "How long requests took, by guarded route (- for all others).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "coatcheck_gateway_requests_in_flight", Help: "Requests under way."}),
		routes:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "coatcheck_gateway_routes", Help: "Guarded routes in force."}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coatcheck_gateway_routes_loaded_timestamp_seconds", Help: "When the routes in force were read, in seconds since 1970.",
		}),
	}
	m.registry.MustRegister(m.requests, m.failures, m.reloads, m.duration, m.inFlight, m.routes, m.loaded,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.name()
	return m
}

// name makes every series appear that has no route, so that a rate over it does not begin in the middle.
func (m *metrics) name() {
	for _, kind := range failures {
		m.failures.WithLabelValues(string(kind))
	}
	for _, result := range []string{"ok", "failed"} {
		m.reloads.WithLabelValues(result)
	}
}

// use notes that other routes are in force. The series of routes that are gone go as well.
func (m *metrics) use(routes Routes, before Routes) {
	m.routes.Set(float64(len(routes)))
	m.loaded.Set(float64(time.Now().Unix()))
	stays := map[string]bool{}
	for _, route := range routes {
		stays[route.Name] = true
		for _, is := range outcomes {
			if is != own {
				m.requests.WithLabelValues(route.Name, string(is))
			}
		}
	}
	for _, route := range before {
		if !stays[route.Name] {
			m.requests.DeletePartialMatch(prometheus.Labels{"route": route.Name})
			m.duration.DeletePartialMatch(prometheus.Labels{"route": route.Name})
		}
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
