// Package muxpattern finds patterns of routes that match no request, or none that their writer has
// in mind: net/http.ServeMux takes the notations of other routers for plain text, and any word for
// a method. A guard for such a pattern guards nothing.
package muxpattern

import (
	"net/http"
	"strings"
)

// Split takes a pattern apart, as net/http.ServeMux does. rest, its path, is "" where the mux
// refuses it.
func Split(pattern string) (method, host, rest string) {
	if at := strings.IndexAny(pattern, " \t"); at >= 0 {
		method, pattern = pattern[:at], strings.TrimLeft(pattern[at:], " \t")
	}
	at := strings.IndexByte(pattern, '/')
	if at < 0 {
		return method, pattern, ""
	}
	return method, pattern[:at], pattern[at:]
}

// IsSafe reports whether a method does nothing that matters if it is done twice (RFC 9110, 9.2.1).
func IsSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
