// Package target holds what stands for a request's path and query in its fingerprint.
package target

import (
	"context"
	"net/http"
	"net/url"
)

type key struct{}

// With returns the request with a text that stands for its path and query: one for all spellings
// that are the same.
func With(r *http.Request, text string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), key{}, text))
}

// Of is that text, or else the path with the query as the client sent them, before
// [http.StripPrefix] and others changed the URL: two mounts of one handler are two operations.
func Of(r *http.Request) string {
	if text, is := r.Context().Value(key{}).(string); is {
		return text
	}
	if r.RequestURI == "" { // the request did not come from a server
		return r.URL.RequestURI()
	}
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil && sent.IsAbs() {
		return sent.RequestURI()
	}
	return r.RequestURI
}
