package server

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/metrics"
)

// showMetrics adds what each scrape reads from this server, and a series for each problem.
func (s *Server) showMetrics() {
	var codes []string
	for _, code := range api.Codes() {
		codes = append(codes, string(code))
	}
	s.metrics.ExpectProblems(codes...)
	s.metrics.Show(metrics.Program{Store: s.store, Tokens: s.tokens, Workers: s.pools, Counters: s.counters, Segments: s.segments,
		Source: s.stored})
	s.metrics.Ask("coatcheck_worker_stamping", metrics.KindGauge, "Pools of which this process stamps ids (held), or would if it had a "+
		"worker id (waiting).", []string{"state"}, func(tell metrics.Tell) {
		states := map[string]int{"held": 0, "waiting": 0}
		for _, worker := range stampingWorkers(s.stamper) {
			states[worker.State]++
		}
		for state, n := range states {
			tell(float64(n), state)
		}
	})
	s.metrics.Ask("coatcheck_in_flight_bytes", metrics.KindGauge,
		"Memory that requests under way take, as far as it is counted: headers, bodies, and answers that wait for their clients.", nil,
		func(tell metrics.Tell) { tell(float64(s.door.BytesInFlight())) })
	s.metrics.Ask("coatcheck_event_listeners", metrics.KindGauge, "Clients that listen to /events.", nil,
		func(tell metrics.Tell) { tell(float64(s.events.Subscribers())) })
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
