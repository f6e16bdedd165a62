// Package frontdoor bounds what a client can use of an HTTP server before a handler sees its
// request: time, size and number of headers, and connections.
package frontdoor
