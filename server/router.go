package server

import (
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
)

// endpoint is one method of one path, the role that it needs (access.None is open to all), and what
// a request of it may take.
type endpoint struct {
	Method, Path string // the path as the documents write it, such as /counter/{key}
	Role         access.Role
	price        *price
	call         string // what its handler asks of which domain, for its span; "" = none
}

// router is where routes are registered, each under the role that it needs.
type router struct {
	open, read, use, admin part

	echo   *echo.Echo
	routes map[string]endpoint // by method and Echo's path
	admits func(access.Role, *price, clients) echo.MiddlewareFunc
	traced func(call string) echo.MiddlewareFunc // nil = no request is traced
}

// part is where the routes of one role are registered.
type part struct {
	*router

	role access.Role
	of   clients
	on   target
}

// clients is how another system's clients authenticate and are refused.
type clients struct {
	key func(echo.Context) string // where else a key may be; nil = nowhere
	// by the system's own credentials; nil = by none
	own    func(echo.Context) (access.Caller, bool)
	refuse func(echo.Context, error) error // nil = with a problem
}

func newRouter(e *echo.Echo, routes map[string]endpoint) *router {
	r := &router{echo: e, routes: routes}
	r.open, r.read = part{router: r, role: access.None}, part{router: r, role: access.Read}
	r.use, r.admin = part{router: r, role: access.Use}, part{router: r, role: access.Admin}
	return r
}

// forClients is the same part, for clients of another system.
func (p part) forClients(c clients) part {
	p.of = c
	return p
}

// where is the same part, for routes whose requests find that at their path.
func (p part) where(on target) part {
	p.on = on
	return p
}

// handle registers a route as add does.
func (p part) handle(route, call string, price *price, handler func(*request) error, middleware ...echo.MiddlewareFunc) {
	p.add(route, call, price, func(c echo.Context) error { return handler(&request{Context: c}) }, middleware...)
}

// add registers a route, such as "GET,HEAD /livez". call is the domain's operation as traces name
// it; "" if there is none, or none that takes time.
func (p part) add(route, call string, price *price, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) {
	if price == nil {
		panic("server: " + route + " says no price: what a request of it may take, see price.go")
	}
	methods, path, _ := strings.Cut(route, " ")
	around := []echo.MiddlewareFunc{p.admits(p.role, price, p.of)}
	if call != "" && p.traced != nil {
		around = append(around, p.traced(call))
	}
	for method := range strings.SplitSeq(methods, ",") {
		around := slices.Clip(around)
		// another system's clients get that system's answers
		if changes(method) && p.of.refuse == nil {
			around = append(around, conditional(p.on))
		}
		handler := chain(handler, append(around, middleware...))
		p.routes[method+" "+path] = endpoint{Method: method, Path: braces(path), Role: p.role, price: price, call: call}
		p.echo.Add(method, path, handler)
	}
}

// complete panics if a route was registered without its role.
func (r *router) complete() {
	for _, route := range r.echo.Routes() {
		if _, ok := r.routes[route.Method+" "+route.Path]; !ok {
			panic("server: " + route.Method + " " + route.Path + " says no role: register it through the router, as all others")
		}
	}
}

// pattern is the template of a request's route, as the documents write it.
func (s *Server) pattern(c echo.Context) string {
	if known, ok := s.known[c.Request().Method+" "+c.Path()]; ok {
		return known.Path
	}
	return braces(c.Path())
}

// braces writes Echo's /token/:token as /token/{token}.
func braces(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if name, ok := strings.CutPrefix(segment, ":"); ok {
			segments[i] = "{" + name + "}"
		}
	}
	return strings.Join(segments, "/")
}
