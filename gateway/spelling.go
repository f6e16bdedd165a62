package gateway

import (
	"net/http"
	"strings"

	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/target"
)

// oneSpelling returns the request with one path in its fingerprint for all spellings that the route
// takes for the same: a client that follows a redirect to the same path with a slash, or without,
// repeats its request.
func (r *guardedRoute) oneSpelling(request *http.Request) *http.Request {
	sent := target.Of(request)
	path, query, has := strings.Cut(sent, "?")
	one := r.spelling(path)
	if one == path {
		return request
	}
	if has {
		one += "?" + query
	}
	return target.With(request, one)
}

// spelling is a path as the route's pattern has it: what stands for wildcards stays as it was sent.
func (r *guardedRoute) spelling(path string) string {
	_, _, pattern := muxpattern.Split(r.Name)
	pattern = strings.TrimSuffix(pattern, "{$}")
	if bare, has := withoutFormat(path); has && !r.DistinctFormat && endsInText(pattern, bare) {
		path = bare
	}
	if !r.DistinctSlash && len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if r.DistinctCase {
		return path
	}
	segments := strings.Split(path, "/")
	for i, literal := range strings.Split(pattern, "/") {
		if i < len(segments) && strings.EqualFold(segments[i], literal) {
			segments[i] = literal
		}
	}
	return strings.Join(segments, "/")
}

// endsInText reports whether a path ends in the pattern's own text, and not in what stands for a
// wildcard, or for all below: there a dot belongs to a name, such as that of a file.
func endsInText(pattern, path string) bool {
	literals := strings.Split(pattern, "/")
	segments := strings.Split(strings.TrimSuffix(path, "/"), "/")
	last := len(segments) - 1
	return last < len(literals) && literals[last] != "" && strings.EqualFold(literals[last], segments[last])
}

// sendsOn reports whether an answer only sends the client on to another spelling of what it has
// asked, by 301, as Django does for a slash: nothing was done, and the key has to be good there.
// After 302 and 303 work may have been done: they are how a service leads on to a page.
func (g *Gateway) sendsOn(answer *http.Response) bool {
	route, sent := exchangeOf(answer.Request.Context()).route, answer.Request.URL
	to, err := answer.Location() // relative to what was sent
	if err != nil || answer.StatusCode != http.StatusMovedPermanently || route == nil || route.Keep != nil {
		return false
	}
	prefix := strings.TrimSuffix(g.config.Upstream.url.EscapedPath(), "/")
	from, at := strings.TrimPrefix(sent.EscapedPath(), prefix), to.EscapedPath() // rewritten before
	return to.Host == sent.Host && to.RawQuery == sent.RawQuery && from != at && route.spelling(from) == route.spelling(at)
}
