package muxpattern

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// methods are the methods that IANA has registered, without CONNECT and PRI, which have no path.
var methods = []string{
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "DELETE", "GET", "HEAD", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY",
	"MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "OPTIONS", "ORDERPATCH", "PATCH", "POST", "PROPFIND", "PROPPATCH", "PUT",
	"QUERY", "REBIND", "REPORT", "SEARCH", "TRACE", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF",
	"VERSION-CONTROL",
}

var (
	host     = lazyregexp.New(`^(([a-z0-9_-]+\.)+[a-z0-9_-]+|localhost)?$`)
	wildcard = lazyregexp.New(`^\{([A-Za-z_]\w*(\.\.\.)?|\$)\}$`)
	// A colon at the beginning of text is another router's wildcard.
	text = lazyregexp.New(`^([\w.~!$&'()+,;=@-]|%[0-9A-Fa-f]{2})([\w.~!$&'()+,;=:@-]|%[0-9A-Fa-f]{2})*$`)
)

// Fault returns what is wrong with a pattern that net/http.ServeMux would refuse, that matches no
// request, or that is written for another router; "" if nothing is.
func Fault(pattern string) string {
	method, name, rest := Split(pattern)
	switch {
	case rest == "":
		return `it has no path: a method and a path belong here, such as "POST /payments"`
	case method != "" && !slices.Contains(methods, method):
		return fmt.Sprintf("%q is no method: one belongs here, in capitals, or none for all methods", method)
	case !host().MatchString(name):
		return fmt.Sprintf("%q is no host: a path begins with a slash, and a host has small letters, at least one dot and no port", name)
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		if segment != "" && !wildcard().MatchString(segment) && !text().MatchString(segment) {
			return fmt.Sprintf("%q stands in no path: between two slashes there is a wildcard, as {id}, at the end {rest...} or {$}; or text "+
				"as a URL has it, percent-encoded where a URL needs that", segment)
		}
	}
	if clean := path.Clean(rest); clean != rest && clean+"/" != rest {
		return "no request can match it: it has segments that are empty, . or .."
	}
	if err := Register(http.NewServeMux(), pattern); err != nil {
		return err.Error()
	}
	return ""
}

// Register adds a pattern to a mux. Where the mux panics it returns an error.
func Register(mux *http.ServeMux, pattern string) error {
	return Handle(mux, pattern, http.NotFoundHandler())
}

// Handle is Register for a handler.
func Handle(mux *http.ServeMux, pattern string, handler http.Handler) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			told := registered().ReplaceAllString(fmt.Sprint(reason), "")
			err = errors.New(strings.Join(strings.Fields(told), " "))
		}
	}()
	mux.Handle(pattern, handler)
	return nil
}

// registered matches where a pattern stands in a source file.
var registered = lazyregexp.New(`\s*\(registered at [^)]*\)`)
