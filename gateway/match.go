package gateway

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/wire"
)

// table is one reading of the routes file. It does not change.
type table struct {
	routes    Routes
	version   string // of the file's content
	loaded    time.Time
	exact     finder // tells letters apart
	folded    finder // of the routes that do not: their patterns in small letters
	published wire.Policies
}

// newTable makes routes ready. They must come from ParseRoutes.
func (g *Gateway) newTable(routes Routes, version string) *table {
	t := &table{routes: routes, version: version, loaded: time.Now(), exact: newFinder(), folded: newFinder()}
	var all []*guardedRoute
	for _, route := range routes {
		guarded := &guardedRoute{Route: route}
		guarded.handler = g.tokens.Middleware(route.Route)(g.upstream(guarded))
		all = append(all, guarded)
		t.exact.add(route.Name, guarded)
		if !route.DistinctCase {
			t.folded.add(fold(route.Name), guarded)
		}
		t.published.Routes = append(t.published.Routes, route.Published())
	}
	for _, guarded := range all { // a pattern of the file comes before one that stands for another
		if guarded.DistinctSlash {
			continue
		}
		t.exact.add(withSlash(guarded.Name), guarded)
		if !guarded.DistinctCase {
			t.folded.add(withSlash(fold(guarded.Name)), guarded)
		}
	}
	return t
}

// finder finds the route of a request.
type finder struct {
	mux       *http.ServeMux // finds the pattern; its handlers are not used
	byPattern map[string]*guardedRoute
}

func newFinder() finder {
	return finder{mux: http.NewServeMux(), byPattern: map[string]*guardedRoute{}}
}

// add adds a route, unless the finder has another of the same pattern.
func (f finder) add(pattern string, route *guardedRoute) {
	if register(f.mux, pattern) == nil {
		f.byPattern[pattern] = route
	}
}

// find returns the route of a request, read as it stands with its path cleaned; nil if there is none.
func (f finder) find(r *http.Request) *guardedRoute {
	_, pattern := f.mux.Handler(r)
	return f.byPattern[pattern]
}

// match finds the route that guards a request; nil if none does. The request goes upstream as it
// came, so no other way to write a guarded request may lead past the guard: it is read as generous
// servers may read it, and as it stands. Of the routes that are found one that insists on a header is
// the right one; of several such, that of the most generous reading.
func (t *table) match(r *http.Request) *guardedRoute {
	var found *guardedRoute
	consider := func(route *guardedRoute) {
		if route != nil && (found == nil || found.Optional && !route.Optional) {
			found = route
		}
	}
	readings := []*http.Request{generous(r)}
	if path, isThere := afterAuthority(r.URL.Path); isThere {
		readings = []*http.Request{generous(withPath(r, path)), readings[0]}
	}
	for _, read := range readings {
		for _, route := range t.read(read) {
			consider(route)
		}
	}
	consider(t.exact.find(r))
	return found
}

// read returns the routes of one reading of a request, the most generous first, with nil for those
// that are none. The path without its format suffix, of which Rails makes the same route, comes
// first, unless the file has a route for the path with it.
func (t *table) read(r *http.Request) []*guardedRoute {
	routes := []*guardedRoute{t.folded.find(small(r)), t.exact.find(r)}
	bare, isThere := withoutFormat(cleaned(r.URL.Path))
	if !isThere || slices.ContainsFunc(routes, (*guardedRoute).endsInFormat) {
		return routes
	}
	r = withPath(r, bare)
	for _, route := range []*guardedRoute{t.exact.find(r), t.folded.find(small(r))} {
		if route != nil && !route.DistinctFormat {
			routes = slices.Insert(routes, 0, route)
		}
	}
	return routes
}

// endsInFormat reports whether the route's own pattern ends in a format suffix, as "POST /report.csv"
// does.
func (r *guardedRoute) endsInFormat() bool {
	if r == nil {
		return false
	}
	_, isThere := withoutFormat(r.Name)
	return isThere && !strings.HasSuffix(strings.TrimSuffix(r.Name, "{$}"), "}")
}

// withoutFormat is a path, or a pattern, without the last dot of its last segment and what follows
// it; a slash at the end stays. isThere is false where the segment has no dot, or begins with it.
func withoutFormat(path string) (bare string, isThere bool) {
	whole := strings.TrimRight(strings.TrimSuffix(path, "{$}"), "/")
	dot, slash := strings.LastIndexByte(whole, '.'), strings.LastIndexByte(whole, '/')
	if slash < 0 || dot < slash+2 {
		return "", false
	}
	return whole[:dot] + path[len(whole):], true
}

// afterAuthority is a path that begins with two slashes as a server reads it that resolves it like a
// link, as Node's new URL(request.url, base) does: the first segment is a host.
func afterAuthority(path string) (rest string, isThere bool) {
	if len(path) < 2 || !strings.ContainsRune(`/\`, rune(path[0])) || !strings.ContainsRune(`/\`, rune(path[1])) {
		return "", false
	}
	at := strings.IndexAny(strings.TrimLeft(path, `/\`), `/\`)
	if at < 0 {
		return "/", true
	}
	return strings.TrimLeft(path, `/\`)[at:], true
}

// withSlash is a pattern with a slash at the end of its path; the pattern itself where it has one, or
// matches all paths below.
func withSlash(pattern string) string {
	for _, end := range []string{"/", "...}", "{$}"} {
		if strings.HasSuffix(pattern, end) {
			return pattern
		}
	}
	return pattern + "/{$}"
}

// fold is a pattern in small letters. Its method and the names of its wildcards stay.
func fold(pattern string) string {
	method, rest, found := strings.Cut(pattern, " ")
	if !found {
		method, rest = "", pattern
	} else {
		method += " "
	}
	var folded strings.Builder
	for rest != "" {
		literal, tail, isWildcard := strings.Cut(rest, "{")
		folded.WriteString(strings.ToLower(literal))
		rest = ""
		if isWildcard {
			name, after, _ := strings.Cut(tail, "}")
			folded.WriteString("{" + name + "}")
			rest = after
		}
	}
	return method + folded.String()
}

// small is a request with its path in small letters.
func small(r *http.Request) *http.Request {
	lower := strings.ToLower(r.URL.Path)
	if lower == r.URL.Path {
		return r
	}
	return withPath(r, lower)
}

func withPath(r *http.Request, path string) *http.Request {
	read, target := *r, *r.URL
	target.Path, target.RawPath = path, ""
	read.URL = &target
	return &read
}

// peculiar reports whether a server can read a request in another way than it stands there.
func peculiar(r *http.Request) bool {
	return r.URL.RawPath != "" || strings.ContainsAny(r.URL.Path, `;\`) || strings.ToUpper(r.Method) != r.Method || hostOf(r) != r.Host
}

// generous is a request as a server may read it that wants to understand every client:
// percent-encoding decoded before the path is taken apart, backslashes for slashes, parameters after
// a semicolon dropped, repeated slashes and dot segments resolved, the method in capitals, and the
// host in small letters without the root's dot.
func generous(r *http.Request) *http.Request {
	if !peculiar(r) {
		return r
	}
	segments := strings.Split(strings.ReplaceAll(r.URL.Path, `\`, "/"), "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	read := withPath(r, cleaned(strings.Join(segments, "/")))
	read.Method, read.Host = strings.ToUpper(r.Method), hostOf(r)
	return read
}

// cleaned is a path with its repeated slashes and dot segments resolved. It keeps a slash at its end.
func cleaned(from string) string {
	clean := path.Clean("/" + from)
	if strings.HasSuffix(from, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// hostOf is the host that a request names, in small letters and without the root's dot.
func hostOf(r *http.Request) string {
	host, port, found := strings.Cut(strings.ToLower(r.Host), ":")
	if host = strings.TrimSuffix(host, "."); found {
		host += ":" + port
	}
	return host
}
