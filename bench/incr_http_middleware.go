package main

import (
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// useMiddleware gives a service Echo's own middleware for what coatcheck's answers have: an id, a
// time limit, headers for browsers, counts for Prometheus, a log of requests at the level that
// coatcheck has here, recovery and a limit for bodies.
func useMiddleware(e *echo.Echo) {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	registry := prometheus.NewRegistry()
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	e.Use(
		middleware.RequestID(),
		middleware.ContextTimeout(30*time.Second),
		middleware.SecureWithConfig(middleware.SecureConfig{ContentTypeNosniff: "nosniff",
			ContentSecurityPolicy: "default-src 'none'; frame-ancestors 'none'"}),
		withCounts(registry),
		middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
			HandleError: true, LogMethod: true, LogStatus: true, LogLatency: true, LogResponseSize: true,
			LogValuesFunc: func(c echo.Context, v middleware.RequestLoggerValues) error {
				if ctx := c.Request().Context(); log.Enabled(ctx, slog.LevelInfo) {
					log.InfoContext(ctx, "request", "method", v.Method, "route", c.Path(), "status", v.Status, "bytes", v.ResponseSize,
						"duration", v.Latency)
				}
				return nil
			},
		}),
		middleware.Recover(),
		middleware.BodyLimit("1M"),
	)
}

// withCounts counts requests by route, method and status, those under way, and how long they take,
// as coatcheck does.
func withCounts(registry *prometheus.Registry) echo.MiddlewareFunc {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."},
		[]string{"route", "method", "status"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "request_seconds", Help: "How long they took."}, []string{"route"})
	underWay := prometheus.NewGauge(prometheus.GaugeOpts{Name: "requests_under_way", Help: "Requests under way."})
	registry.MustRegister(requests, took, underWay)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			begun := time.Now()
			underWay.Inc()
			defer underWay.Dec()
			err := next(c)
			requests.WithLabelValues(c.Path(), c.Request().Method, strconv.Itoa(c.Response().Status)).Inc()
			took.WithLabelValues(c.Path()).Observe(time.Since(begun).Seconds())
			return err
		}
	}
}
