package metrics

import (
	"bytes"
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/singleflight"
)

// Kind is what sort of metric one is.
type Kind string

// The kinds.
const (
	KindCounter   Kind = "counter"
	KindGauge     Kind = "gauge"
	KindHistogram Kind = "histogram"
)

// Metric describes one for people, and for tests.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
}

// Registry holds the metrics of one process, those of Go and of the process among them, and lists
// those that are ours. Metrics are added to it at start-up; a name that is there already is a
// programmer's mistake and panics.
type Registry struct {
	all    *prometheus.Registry
	ours   *prometheus.Registry // without those of Go and the process
	listed []Metric
}

// NewRegistry returns a registry with metrics of Go and the process, and the program's version.
func NewRegistry(version string) *Registry {
	r := &Registry{all: prometheus.NewRegistry(), ours: prometheus.NewRegistry()}
	r.all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.Gauge("coatcheck_build_info", "Always 1; the labels say which version of the program runs, and which Go it was built with.",
		"version", "go").
		WithLabelValues(version, runtime.Version()).Set(1)
	return r
}

// Listed describes the metrics that are ours, by name.
func (r *Registry) Listed() []Metric {
	listed := slices.Clone(r.listed)
	slices.SortFunc(listed, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return listed
}

// Handler answers a scrape, in the text format that every Prometheus reads. What cannot be asked
// for is missing, and the rest is there. One scrape is under way at a time, with gzip and without:
// all who ask meanwhile get its answer.
func (r *Registry) Handler() http.Handler {
	handler := promhttp.HandlerFor(r.all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	var underWay singleflight.Group
	return http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		coding := "identity"
		if strings.Contains(asked.Header.Get("Accept-Encoding"), "gzip") {
			coding = "gzip"
		}
		found, _, _ := underWay.Do(coding, func() (any, error) {
			plain := &http.Request{Method: http.MethodGet, URL: asked.URL, Header: http.Header{"Accept-Encoding": {coding}}}
			answer := &sharedScrape{header: http.Header{}}
			handler.ServeHTTP(answer, plain)
			return answer, nil
		})
		found.(*sharedScrape).sendTo(w) //nolint:forcetypeassert // as above
	})
}

// sharedScrape is the answer to a scrape, for all who have asked for it.
type sharedScrape struct {
	header http.Header
	status int
	text   bytes.Buffer
}

func (s *sharedScrape) Header() http.Header             { return s.header }
func (s *sharedScrape) WriteHeader(status int)          { s.status = status }
func (s *sharedScrape) Write(bytes []byte) (int, error) { return s.text.Write(bytes) }

func (s *sharedScrape) sendTo(w http.ResponseWriter) {
	for name, values := range s.header {
		w.Header()[name] = slices.Clone(values)
	}
	w.WriteHeader(cmp.Or(s.status, http.StatusOK))
	_, _ = w.Write(s.text.Bytes()) // the client may have hung up
}

// Collector is the metrics that are ours, also those that are added later, for the registry of an
// application, which has metrics of Go and its process already.
func (r *Registry) Collector() prometheus.Collector { return r.ours } //nolint:ireturn // it is what a registry takes

func (r *Registry) add(one prometheus.Collector) {
	r.all.MustRegister(one)
	r.ours.MustRegister(one)
}

// Counter adds a counter with labels.
func (r *Registry) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	r.list(name, KindCounter, help, labels)
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.add(vec)
	return vec
}

// Gauge adds a gauge with labels.
func (r *Registry) Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	r.list(name, KindGauge, help, labels)
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.add(vec)
	return vec
}

// Histogram adds a histogram with labels.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	r.list(name, KindHistogram, help, labels)
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.add(vec)
	return vec
}

// begin makes the series of some labels appear, so that rates over them begin at zero.
func begin[T any](of interface{ WithLabelValues(labels ...string) T }, labels ...string) {
	for _, label := range labels {
		of.WithLabelValues(label)
	}
}

// Tell gives the value of a series, one value for each label.
type Tell func(value float64, labels ...string)

// Ask adds a counter or a gauge whose values each scrape asks for. What is not told is not there.
func (r *Registry) Ask(name string, kind Kind, help string, labels []string, ask func(Tell)) {
	r.list(name, kind, help, labels)
	as := prometheus.GaugeValue
	if kind == KindCounter {
		as = prometheus.CounterValue
	}
	r.add(asked{prometheus.NewDesc(name, help, labels, nil), as, ask})
}

func (r *Registry) list(name string, kind Kind, help string, labels []string) {
	r.listed = append(r.listed, Metric{name, kind, labels, help})
}

// asked is a collector that asks when it is sharedScrape.
type asked struct {
	desc *prometheus.Desc
	as   prometheus.ValueType
	ask  func(Tell)
}

func (a asked) Describe(to chan<- *prometheus.Desc) { to <- a.desc }

func (a asked) Collect(to chan<- prometheus.Metric) {
	a.ask(func(value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(a.desc, a.as, value, labels...)
	})
}

// Buckets of histograms, in seconds.
var (
	// Quick are for what one round trip takes.
	Quick = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	// Patient are for requests, which may wait for others.
	Patient = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// Long are for what is held.
	Long = []float64{.01, .1, .5, 1, 5, 15, 30, 60, 300, 900, 3600, 14400}
)
