package muxpattern

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// ConflictError is why a mux does not take a pattern beside another that it has: there are requests
// of both, and neither is the more specific.
type ConflictError struct {
	Pattern, Other string
	Same           bool   // both match the same requests
	Common         string // a path of both; "" = one has fewer methods, and the other fewer paths
}

// Register adds a pattern to a mux. Where the mux panics it returns an error: a
// [*ConflictError], or what is wrong with the pattern by itself.
func Register(mux *http.ServeMux, pattern string) error {
	return Handle(mux, pattern, http.NotFoundHandler())
}

// Handle is Register for a handler.
func Handle(mux *http.ServeMux, pattern string, handler http.Handler) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = refusal(pattern, fmt.Sprint(reason))
		}
	}()
	mux.Handle(pattern, handler)
	return nil
}

var (
	conflicting = regexp.MustCompile(`^pattern .* conflicts with pattern ("(?:[^"\\]|\\.)*") \(registered at [^)]*\):`)
	commonPath  = regexp.MustCompile(`both match some paths, like ("(?:[^"\\]|\\.)*")\.`)
)

// refusal reads what a mux panics with.
func refusal(pattern, text string) error {
	found := conflicting.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("%s", text)
	}
	c := &ConflictError{Pattern: pattern, Same: strings.Contains(text, " matches the same requests as ")}
	c.Other, _ = strconv.Unquote(found[1])
	if path := commonPath.FindStringSubmatch(text); path != nil {
		c.Common, _ = strconv.Unquote(path[1])
	}
	return c
}

func (c *ConflictError) Error() string { return c.At("") }

// At is the error with where the other pattern stands, such as " in line 2".
func (c *ConflictError) At(where string) string {
	switch {
	case c.Pattern == c.Other:
		return fmt.Sprintf("%q stands%s already: give one up", c.Pattern, where)
	case c.Same:
		return fmt.Sprintf("%q matches the same requests as %q%s: give one up", c.Pattern, c.Other, where)
	}
	method, host, path := Split(c.Pattern)
	otherMethod, _, otherPath := Split(c.Other)
	both := fmt.Sprintf("%q and %q%s both match ", c.Pattern, c.Other, where)
	switch {
	case c.Common != "":
		return both + fmt.Sprintf("%q, and neither is the more specific", c.Common) + suggested(join(method, host+c.Common), c.Other, "")
	case method != "":
		return both + fewer + suggested(join(method, host+otherPath), c.Pattern, where)
	}
	return both + fewer + suggested(join(otherMethod, host+path), c.Other, "")
}

const fewer = "requests: one has fewer methods, and the other fewer paths"

// suggested is the pattern that may be meant, if it goes together with the other one.
func suggested(pattern, beside, where string) string {
	mux := http.NewServeMux()
	if Fault(pattern) != "" || Register(mux, beside) != nil || Register(mux, pattern) != nil {
		return ""
	}
	return fmt.Sprintf("; did you mean %q%s?", pattern, where)
}
