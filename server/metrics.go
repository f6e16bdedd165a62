package server

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/segment"
)

// showMetrics adds what each scrape reads from this server, and a series for each problem.
func (s *Server) showMetrics() {
	var codes []string
	for _, code := range api.Codes() {
		codes = append(codes, string(code))
	}
	s.metrics.ExpectProblems(codes...)
	metrics.ShowConnections(s.metrics.Registry, s.store)
	metrics.ShowBacklogs(s.metrics.Registry, func() []metrics.Backlog {
		answers, claims := s.tokens.Backlogs()
		return []metrics.Backlog{metrics.Backlog(answers), metrics.Backlog(claims)}
	})
	s.doubt.Show(s.metrics.Registry)
	s.showSegments(s.metrics.Registry)
	s.rings.show(s.metrics.Registry, s.stamper)
	s.metrics.Ask("coatcheck_counter_moves_total", metrics.Counter,
		"Counters, and segments' counters, that were behind, or may have been, and were moved past all values that can have been "+
			"handed out.", []string{"kind"}, func(tell metrics.Tell) {
			tell(float64(s.counters.Totals().Moved), "counter")
			if s.stored != nil {
				tell(float64(s.stored.Totals().Moved), "segment")
			}
		})
	s.metrics.Ask("coatcheck_bytes_in_flight", metrics.Gauge,
		"Memory that requests under way take, as far as it is counted: headers, bodies, and answers that wait for their clients.", nil,
		func(tell metrics.Tell) { tell(float64(s.door.BytesInFlight())) })
	s.metrics.Ask("coatcheck_event_listeners", metrics.Gauge, "Clients that listen to /events.", nil,
		func(tell metrics.Tell) { tell(float64(s.events.Subscribers())) })
}

func (s *Server) showSegments(r *metrics.Registry) {
	show := func(name string, kind metrics.Kind, help string, value func(segment.Totals) float64) {
		r.Ask(name, kind, help, nil, func(tell metrics.Tell) { tell(value(s.segments.Totals())) })
	}
	show("coatcheck_segment_tags", metrics.Gauge, "Tags of segments that are in use.",
		func(t segment.Totals) float64 { return float64(t.Tags) })
	show("coatcheck_segment_starvations_total", metrics.Counter,
		"Times that callers found no id of a tag in use: one from when the first of them did until a range came.",
		func(t segment.Totals) float64 { return float64(t.Starved) })
	show("coatcheck_segment_went_back_total", metrics.Counter,
		"Ranges that were refused, since they were not wholly beyond those before: the source has gone back.",
		func(t segment.Totals) float64 { return float64(t.WentBack) })
	show("coatcheck_segment_let_go_total", metrics.Counter,
		"Tags that were let go because they were not used.", func(t segment.Totals) float64 { return float64(t.LetGo) })
	r.Ask("coatcheck_segment_fetches_total", metrics.Counter,
		"Fetches of ranges for tags, by whether they brought one.", []string{"outcome"}, func(tell metrics.Tell) {
			totals := s.segments.Totals()
			tell(float64(totals.Fetches), metrics.Done)
			tell(float64(totals.Failures), metrics.Failed)
		})
}

// counted counts requests, and how long they took.
func (s *Server) counted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		s.metrics.RequestBegan()
		err := next(c) // it has been answered, see accessLog
		took := time.Since(began)
		if isStream(c) {
			took = -1
		}
		s.metrics.RequestEnded(s.pattern(c), requestlog.Method(c.Request().Method), c.Response().Status, took)
		return err
	}
}

// scrape answers Prometheus.
func (s *Server) scrape(c echo.Context) error {
	noStore(c)
	s.metrics.Handler().ServeHTTP(c.Response(), c.Request())
	return nil
}
