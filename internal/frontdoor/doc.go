// Package frontdoor bounds what somebody can take of an HTTP server before a handler has seen a
// request of theirs: time, size and number of headers, and connections.
package frontdoor
