package server

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// Handle adds a route of the test's own to a service that has not begun to serve.
func (s *Server) Handle(method, path string, handler http.HandlerFunc) {
	s.echo.Add(method, path, echo.WrapHandler(handler))
}

// HandleGuarded adds a guarded route of the test's own. An error that the handler returns becomes
// its answer, as with the service's own routes.
func (s *Server) HandleGuarded(method, path string, route idempotency.Route, handler func(http.ResponseWriter, *http.Request) error) {
	s.echo.Add(method, path, func(c echo.Context) error { return handler(c.Response(), c.Request()) }, (&guards{tokens: s.tokens, events: s.events, tracer: s.config.Tracer}).around(route))
}

// Route is one method of one path, and the role that it needs.
type Route = endpoint

// Routes lists all routes, by path and method.
func (s *Server) Routes() []Route {
	return slices.SortedFunc(maps.Values(s.known), func(a, b Route) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
}

// WithForgottenRoute makes the table of a service that has a route without a role.
func WithForgottenRoute() {
	e := echo.New()
	at := newRouter(e, map[string]endpoint{})
	at.admits = (&admission{}).admits
	at.read.add("GET /known", "", smallPrice, nil)
	e.GET("/forgotten", nil)
	at.complete()
}

// SetNow gives a service that has not begun to serve another clock for the dates of numbers and the
// ends of client certificates.
func (s *Server) SetNow(now func() time.Time) { s.now = now }

// Tell tells the listeners of an event.
func (s *Server) Tell(name string) { s.events.Add(api.Event{Kind: events.CounterSet, Name: name}) }

// SetBeat has a service that has not begun to serve look after those who listen to its events more
// often.
func (s *Server) SetBeat(every time.Duration) { s.events.Heartbeat = every }

// SetPatience has a service that has not begun to serve give those who listen to its events another
// time to take what is sent.
func (s *Server) SetPatience(patience time.Duration) { s.events.WriteTimeout = patience }

// LookAgain has the next scrape ask Redis for all that it shows, however often that was done.
func (s *Server) LookAgain() { s.metrics.LookAgain() }

// Listeners is how many listen to the events.
func (s *Server) Listeners() int { return s.events.Subscribers() }

// DomainCall is what the handler of a route asks of a domain, as traces name it.
func DomainCall(route Route) string { return route.call }

// ForgetHealth has the next request for /readyz ask the store.
func (s *Server) ForgetHealth() { s.probes.health.Forget() }

// WithUnpricedRoute makes the table of a service that has a route without a price.
func WithUnpricedRoute() {
	at := newRouter(echo.New(), map[string]endpoint{})
	at.admits = (&admission{}).admits
	at.read.add("GET /unpriced", "", nil, nil)
}

// IsFewAtOnce reports whether few requests of a route may be under way at once.
func IsFewAtOnce(route Route) bool { return route.price.places != nil }

// HoldLists takes so many places of lists for a principal, or fewer if there are fewer, and returns
// how many, and what gives them back.
func (s *Server) HoldLists(principal string, most int) (n int, leave func()) {
	for n < most && s.admission.lists.TakeMany(principal, 1) {
		n++
	}
	return n, func() { s.admission.lists.Add(principal, -n) }
}

// HoldDocuments is HoldLists for documents, of an address.
func (s *Server) HoldDocuments(address string, most int) (n int, leave func()) {
	for n < most && s.admission.documents.TakeMany(address, 1) {
		n++
	}
	return n, func() { s.admission.documents.Add(address, -n) }
}
