package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// guardedRoute is a route of the file, ready for requests.
type guardedRoute struct {
	Route

	handler http.Handler // the guard, with the upstream behind it
}

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
		consider(t.folded.find(small(read)))
		consider(t.exact.find(read))
	}
	consider(t.exact.find(r))
	return found
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
	clean := path.Clean("/" + strings.Join(segments, "/"))
	if segments[len(segments)-1] == "" && clean != "/" {
		clean += "/"
	}
	read := withPath(r, clean)
	read.Method, read.Host = strings.ToUpper(r.Method), hostOf(r)
	return read
}

// hostOf is the host that a request names, in small letters and without the root's dot.
func hostOf(r *http.Request) string {
	host, port, found := strings.Cut(strings.ToLower(r.Host), ":")
	if host = strings.TrimSuffix(host, "."); found {
		host += ":" + port
	}
	return host
}

// admits refuses what can not be guarded: an answer to an upgrade is a connection, which nobody can record.
func (g *Gateway) admits(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	if isH2C(r.Header) {
		dropUpgrade(r.Header)
	}
	if upgrade(r.Header) == "" || x.route.passes(r) {
		return true
	}
	x.outcome = badRequest
	problem := wire.NewProblem(wire.InvalidRequest, "Upgrade: a guarded route does not switch protocols; nothing was sent to the service behind the gateway")
	problem.Field = "Upgrade"
	g.writeProblem(w, r, problem)
	return false
}

// passes tells whether a request passes unguarded: the route does not insist, and no header is there.
func (r *guardedRoute) passes(request *http.Request) bool {
	for _, name := range r.Accept.Headers() {
		if len(request.Header.Values(name)) > 0 {
			return false
		}
	}
	return r.Optional
}

// upstream is what a route guards: the request to the upstream, bounded in time by the route and not by the client.
func (g *Gateway) upstream(route *guardedRoute) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		if _, isGuarded := idempotency.FromContext(r.Context()); !isGuarded {
			x.outcome = unguarded
			g.open.ServeHTTP(w, r)
			return
		}
		x.outcome = granted
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		x.granted = ctx
		limit := time.AfterFunc(route.UpstreamTimeout, func() { cancel(errTimeout) })
		defer limit.Stop()
		defer context.AfterFunc(g.hard, func() { cancel(context.Cause(g.hard)) })()
		x.onSend = func() { limit.Stop() } // what is sent already is recorded, and may take its time
		g.exchangeOnce(w, r.WithContext(ctx))
	})
}

// exchangeOnce sends a request of an attempt to the upstream. If the attempt was replaced and the guard refuses to let its answer out, ReverseProxy can not
// go on and panics; that is not an answer that broke off, and the guard says it to the client.
func (g *Gateway) exchangeOnce(w http.ResponseWriter, r *http.Request) {
	answer := &guardedAnswer{ResponseWriter: w}
	defer func() {
		if reason := recover(); reason != nil && !errors.Is(answer.err, redisstore.ErrLost) {
			panic(reason)
		}
	}()
	g.once.ServeHTTP(answer, r)
}

// guardedAnswer notes the error with which the guard refuses an answer.
type guardedAnswer struct {
	http.ResponseWriter
	err error
}

func (a *guardedAnswer) Write(bytes []byte) (int, error) {
	n, err := a.ResponseWriter.Write(bytes)
	if err != nil && a.err == nil {
		a.err = err
	}
	return n, err
}

// Unwrap lets net/http find Flush.
func (a *guardedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// boundBody bounds how long a body may take to arrive. net/http lifts the bound when the body is there.
func boundBody(w http.ResponseWriter, body io.ReadCloser, limit time.Duration) io.ReadCloser {
	if body == nil || body == http.NoBody {
		return body
	}
	return &timedBody{ReadCloser: body, control: http.NewResponseController(w), limit: limit}
}

type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration
	start   sync.Once
}

func (b *timedBody) Read(into []byte) (int, error) {
	b.start.Do(func() { _ = b.control.SetReadDeadline(time.Now().Add(b.limit)) }) // a connection that takes no deadline has none
	return b.ReadCloser.Read(into)
}
