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

// spelling is a path as the route's pattern has it: what stands for wildcards stays as it was sent,
// but for a format at the end.
func (r *guardedRoute) spelling(path string) string {
	_, _, pattern := muxpattern.Split(r.Name)
	pattern = strings.TrimSuffix(pattern, "{$}")
	if bare, has := withoutFormat(path); has && !r.DistinctFormat {
		if _, own := withoutFormat(pattern); !own {
			path = bare
		}
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
