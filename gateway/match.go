package gateway

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// table is one reading of the routes file. It does not change.
type table struct {
	routes    Routes
	version   string // of the file's content
	loaded    time.Time
	exact     finder // tells letters apart
	folded    finder // of the routes that do not: their patterns in small letters
	published api.Policies
	longest   Route // of these and all before
}

// newTable makes routes ready. They must come from ParseRoutes.
func (g *Gateway) newTable(routes Routes, version string) *table {
	t := &table{routes: routes, version: version, loaded: time.Now(), exact: newFinder(), folded: newFinder()}
	t.longest = longestOf(routes, g.routes.Load())
	var all []*guardedRoute
	for _, route := range routes {
		guarded := &guardedRoute{Route: route, exact: newFinder(), folded: newFinder()}
		guarded.handler = g.tokens.Middleware(route.Route)(g.upstream(guarded))
		all = append(all, guarded)
		t.published.Routes = append(t.published.Routes, route.Published())
	}
	for _, guarded := range all {
		t.add(guarded, guarded.Name)
	}
	for _, guarded := range all { // a pattern of the file comes before one that stands for another
		if !guarded.DistinctSlash {
			t.add(guarded, withSlash(guarded.Name))
		}
	}
	return t
}

func (t *table) add(route *guardedRoute, pattern string) {
	t.exact.add(pattern, route)
	route.exact.add(pattern, route)
	if !route.DistinctCase {
		t.folded.add(fold(pattern), route)
		route.folded.add(fold(pattern), route)
	}
}

// finder finds the route of a request.
type finder struct {
	mux       *http.ServeMux // finds the pattern; its handlers are not used
	byPattern map[string]*guardedRoute
	aside     []aside
}

// aside is a pattern that the mux does not take beside another, as "/{kind}/{$}" beside "/old/":
// neither is the more specific one.
type aside struct {
	pattern string
	route   *guardedRoute
	alone   *http.ServeMux // finds the pattern alone
}

func newFinder() finder {
	return finder{mux: http.NewServeMux(), byPattern: map[string]*guardedRoute{}}
}

// add adds a route, unless the finder has another of the same pattern.
func (f *finder) add(pattern string, route *guardedRoute) {
	if f.byPattern[pattern] != nil {
		return
	}
	if muxpattern.Register(f.mux, pattern) == nil {
		f.byPattern[pattern] = route
		return
	}
	alone := http.NewServeMux()
	if muxpattern.Register(alone, pattern) == nil {
		f.aside = append(f.aside, aside{pattern, route, alone})
	}
}

// find returns the route of a request, read as it stands with its path cleaned; nil if none.
func (f *finder) find(r *http.Request) *guardedRoute {
	_, pattern := f.mux.Handler(r)
	found := f.byPattern[pattern]
	if found != nil && found.DistinctSlash && lacksSlash(r.URL.Path, pattern) {
		found = nil
	}
	for _, one := range f.aside {
		if one.guards(r, pattern, found) {
			return one.route
		}
	}
	return found
}

// lacksSlash reports whether a path is that of a pattern but for the slash at its end, where the
// mux would redirect.
func lacksSlash(path, pattern string) bool {
	pattern = strings.TrimSuffix(pattern, "{$}")
	return strings.HasSuffix(pattern, "/") && !strings.HasSuffix(path, "/") && depth(path+"/") == depth(pattern)
}

// guards reports whether a request is the route's for which the mux finds another, or none: nil.
func (a aside) guards(r *http.Request, pattern string, found *guardedRoute) bool {
	if _, at := a.alone.Handler(r); at != a.pattern {
		return false
	}
	if found == nil || found.Optional != a.route.Optional {
		return found == nil || found.Optional
	}
	both := http.NewServeMux() // finds the more specific of the two
	if muxpattern.Register(both, a.pattern) != nil || muxpattern.Register(both, pattern) != nil {
		return false
	}
	_, at := both.Handler(r)
	return at == a.pattern
}

// match finds the route that guards a request; nil if none does. The request goes upstream as it
// came, so no other spelling of a guarded request may lead past the guard: match reads it as
// lenient servers may, and as it stands. Among the routes found, one that insists on a header wins;
// of several such, that of the most lenient reading, or a more specific one.
func (t *table) match(r *http.Request) *guardedRoute {
	readings := []*http.Request{normalized(r)}
	if path, isThere := afterAuthority(r.URL.Path); isThere {
		readings = []*http.Request{normalized(withPath(r, path)), readings[0]}
	}
	readings = append(readings, r)
	if literal, isThere := unresolved(r); isThere {
		readings = append(readings, literal)
	}
	var found *guardedRoute
	for _, read := range readings {
		for _, one := range t.read(read) {
			if one.route != nil && (found == nil || found.yields(one)) {
				found = one.route
			}
		}
	}
	return found
}

// candidate is a route, and how a request was read to find it.
type candidate struct {
	route *guardedRoute // nil = none was found
	read  *http.Request
	small bool // in small letters, by the finder that does not tell letters apart
}

// yields reports whether a route gives way to one of a less lenient reading: to one that insists on
// a header, if it does not; or to a more specific one, as "/" to "POST /payments".
func (r *guardedRoute) yields(to candidate) bool {
	if r == to.route || r.Optional != to.route.Optional {
		return r.Optional && !to.route.Optional
	}
	if to.small {
		return r.folded.find(to.read) != nil
	}
	return r.exact.find(to.read) != nil
}

// read returns the routes of one reading of a request, the most lenient first. The path without its
// format suffix, of which Rails makes the same route, comes first, unless the file has a route for
// the path with it.
func (t *table) read(r *http.Request) []candidate {
	plain := t.candidates(r)
	path, isThere := withoutFormat(muxpattern.Cleaned(r.URL.Path))
	if !isThere || slices.ContainsFunc(plain, func(c candidate) bool { return c.route.endsInFormat(c.read) }) {
		return plain
	}
	bare := slices.DeleteFunc(t.candidates(withPath(r, path)), func(c candidate) bool { return c.route == nil || c.route.DistinctFormat })
	return append(bare, plain...)
}

func (t *table) candidates(r *http.Request) []candidate {
	lower := small(r)
	return []candidate{{t.folded.find(lower), lower, true}, {t.exact.find(r), r, false}}
}

// endsInFormat reports whether the route's own pattern ends in a format, as "POST /report.csv", and
// so where a request's path ends: not where the path goes on, as below "/v1.2/".
func (r *guardedRoute) endsInFormat(request *http.Request) bool {
	if r == nil {
		return false
	}
	pattern := strings.TrimSuffix(r.Name, "{$}")
	_, isThere := withoutFormat(pattern)
	return isThere && !strings.HasSuffix(pattern, "}") && depth(pattern) == depth(muxpattern.Cleaned(request.URL.Path))
}
