package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/share"
)

var no = allowQuery() // query parameters

// routes registers the whole API, subject by subject: at.<role> is the role that routes need.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = s.writeError
	e.Use(s.chained())

	at := newRouter(e, s.known)
	at.admits = s.admission.admits
	if s.config.Tracer != nil {
		at.traced = s.inDomain
	}
	s.handlers(at)
	at.complete()
	return e
}

func (s *Server) handlers(at *router) {
	config, now := s.config, func() time.Time { return s.now() }
	(&tokens{s.tokens, s.journal, config.Principal, &s.draining}).routes(at)
	(&operations{s.tokens, s.journal, config.Principal, s.log, s.metrics}).routes(at)
	(&storeAdmin{s.store, s.journal}).routes(at)
	(&counters{
		counters: s.counters, metrics: s.metrics, journal: s.journal, principal: config.Principal, tokens: s.tokens, now: now,
		roles: config.Access != nil,
	}).routes(at)
	(&ids{s.stamper, s.pools, s.segments, s.stored, s.metrics, s.journal, config.IDPool, config.OpaqueKeys}).routes(at)
	(&limits{s.limits, s.metrics, s.journal}).routes(at)
	(&workers{s.pools, s.journal, s.stamper.Declared}).routes(at)
	(&locks{
		locks: s.locks, metrics: s.metrics, journal: s.journal, log: s.log, life: s.life,
		longest: longestTTL(config.Locks),
		// so that there is time to give the place back, and to say so
		patient: config.RequestTimeout * 9 / 10,
		waiting: share.Quota{Most: cmp.Or(config.LockWaits, DefaultLockWaits), Lone: config.Access == nil},
	}).routes(at)
	s.compatible(at)

	s.guards = &guards{tokens: s.tokens, events: s.events, tracer: config.Tracer, policies: api.Policies{Routes: []api.RoutePolicy{}}}
	if config.Dev {
		route := idempotency.Route{Name: "POST /payments", Scope: "payments", Lease: config.PaymentLease, MaxBody: config.MaxBody}
		(&payments{s.ledger, config.PaymentDelay}).routes(at, s.guards.around(route))
	}
	at.read.add("GET "+policyPath, "", smallPrice, s.guards.show)

	at.read.handle("GET "+eventsPath, "", smallPrice, (&feed{s.events, s.admission, s.life.Done()}).follow, allowQuery("backlog"))
	(&consolePage{config: config.Console, admission: s.admission, store: s.store}).routes(at)
	if config.Console.Mode != ConsoleOff {
		at.read.handle("GET /console/api/history", "", pagePrice, s.showHistory, allowQuery("n"))
	}
	at.open.add("GET,HEAD /", "", smallPrice, showIndex)
	at.open.add("GET,HEAD /livez", "", smallPrice, showLive)
	at.open.handle("GET,HEAD /readyz", "", smallPrice, s.probes.ready)
	at.open.add("GET /problems/:code", "", smallPrice, showProblem)
	documents(at.open)
	at.read.add("GET /metrics", "", smallPrice, s.scrape)
	at.open.add("GET /favicon.ico", "", smallPrice, func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
}
