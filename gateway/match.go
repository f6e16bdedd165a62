package gateway

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// table is one reading of the routes file. It does not change.
type table struct {
	routes  Routes
	version string // of the file's content
	loaded  time.Time
	mux     *http.ServeMux // its handlers are guardedRoutes
	// the same without hosts, for a service that does not get the Host; nil = no pattern has one
	hostless  *http.ServeMux
	others    *guardedRoute // of unsafe requests that no route names; nil = they are refused
	published api.Policies
	longest   Route // of these and all before
}

// oneScope is the key space of the gateway: a key that was used on one route is used on all, unless
// a route has keys of its own. No name of a key space is the same.
const oneScope = "*"

// othersName stands for the requests that no route names where a route's name belongs.
const othersName = "unmatched"

// newTable makes routes ready. They must come from ParseRoutes.
func (g *Gateway) newTable(routes Routes, version string) (*table, error) {
	t := &table{routes: routes, version: version, loaded: time.Now(), mux: http.NewServeMux()}
	t.longest = longestOf(routes, g.routes.Load())
	of := map[string]*guardedRoute{}
	for _, route := range routes.List {
		made := g.guard(route)
		of[route.Name] = made
		for _, pattern := range route.Match {
			if err := muxpattern.Handle(t.mux, pattern, made); err != nil {
				return nil, err // ParseRoutes has tried it
			}
		}
		if !route.Unguarded {
			policy := made.Published()
			if made.Keys == oneScope {
				policy.UniqueOver = "all routes of the gateway but those with a key space of their own"
			}
			t.published.Routes = append(t.published.Routes, policy)
		}
	}
	if !g.config.PreserveHost {
		t.hostless, _ = routes.hostless(func(route Route) http.Handler { return of[route.Name] })
	}
	if routes.Open {
		t.others = g.guard(unmatched())
	}
	return t, nil
}

// unmatched is the route of unsafe requests that no other one names, in a gateway that is open.
func unmatched() Route {
	return Route{Route: idempotency.Route{Name: othersName, Optional: true}.WithDefaults(), UpstreamTimeout: upstreamTimeout}
}

// guard makes a route's guard, with the upstream behind it.
func (g *Gateway) guard(route Route) *guardedRoute {
	if route.Keys == "" {
		route.Keys = oneScope
	}
	// the service can be another one under another name
	if g.config.PreserveHost {
		route.Headers = append(slices.Clip(route.Headers), "Host")
	}
	if g.config.TrustForwarded {
		route.Headers = append(slices.Clip(route.Headers), forwardedHost)
	}
	made := &guardedRoute{Route: route}
	if !route.Unguarded {
		if ask := route.Caller.Ask; ask != nil {
			route.Principal = g.askedBy(*ask)
		}
		route.Resolve = g.resolver(route)
		made.handler = g.tokens.Middleware(route.Route)(g.upstream(made))
	}
	return made
}

// find returns the route that names a request; nil if none does.
func (t *table) find(r *http.Request) *guardedRoute {
	if host := plainHost(r.Host); host != r.Host {
		read := *r
		read.Host = host
		r = &read
	}
	route := routeIn(t.mux, r)
	if t.hostless != nil && routeIn(t.hostless, r) != route {
		return nil // to the service it is a request of another route
	}
	return route
}

func routeIn(mux *http.ServeMux, r *http.Request) *guardedRoute {
	handler, _ := mux.Handler(r)
	route, _ := handler.(*guardedRoute) // else it is the mux's own, such as one that redirects
	return route
}

// plainHost is a host in small letters and without the root's dot.
func plainHost(host string) string {
	name, port, has := strings.Cut(strings.ToLower(host), ":")
	if name = strings.TrimSuffix(name, "."); has {
		name += ":" + port
	}
	return name
}
