// Package muxpattern finds patterns of routes that match no request, or none that their writer has
// in mind: net/http.ServeMux takes the notations of other routers for plain text, and any word for
// a method. A guard for such a pattern guards nothing.
package muxpattern

import (
	"bufio"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/names"
)

// usual are the methods that are suggested for an unknown one.
var usual = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions}

// methods are those that IANA has registered, without CONNECT and PRI, which ask for no path.
var methods = append([]string{
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE",
	"ORDERPATCH", "PROPFIND", "PROPPATCH", "QUERY", "REBIND", "REPORT", "SEARCH", "TRACE", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
}, usual...)

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

// foreign are notations of other routers within a path: what matches them, what they are called,
// and what net/http.ServeMux has instead. The order counts.
var foreign = []struct {
	form          *regexp.Regexp
	what, instead string
}{
	{regexp.MustCompile(`\{[*+]+(\w+)\}|\{(\w+)[*+]\}`), "* and + are not for a wildcard's name", "{$1$2...}"},
	{regexp.MustCompile(`\{(\w+)[:?=][^/]*\}`), "a wildcard has a name and nothing else", "{$1}"},
	{regexp.MustCompile(`[?#].*`), "a query or a fragment belongs to no pattern: it begins with ? or #", ""},
	{regexp.MustCompile(`<(?:\w+:)?(\w+)>`), "<name> is no wildcard here", "{$1}"},
	{regexp.MustCompile(`\[+\.\.\.(\w+)\]+`), "[...name] is no wildcard here", "{$1...}"},
	{regexp.MustCompile(`\[(\w+)\]`), "[name] is no wildcard here", "{$1}"},
	{regexp.MustCompile(`/:(\w+)\*$`), ":name is no wildcard here", "/{$1...}"},
	{regexp.MustCompile(`/:(\w+)(?:\([^/]*\))?[?+*]?`), ":name is no wildcard here", "/{$1}"},
	{regexp.MustCompile(`/\*+([a-z]\w*)$`), "* is no wildcard here", "/{$1...}"},
	{regexp.MustCompile(`/\(?\.?\*+\)?$`), "* is no wildcard here", "/{rest...}"},
	{regexp.MustCompile(`/\(?\.?\*\)?/`), "* is no wildcard here", "/{any}/"},
	{regexp.MustCompile(`/\.?\+$`), "+ is no wildcard here", "/{rest...}"},
	{regexp.MustCompile(`/\$(\d+)(/|$)`), "$1 is no wildcard here", "/{p$1}$2"},
	{regexp.MustCompile(`/\$(id|\w+_id|[a-z]\w*Id)(/|$)`), "$name is no wildcard here", "/{$1}$2"},
	{regexp.MustCompile(`,\s*/.*`), "one route has one path: write a route for each", ""},
	{regexp.MustCompile(`[^/{]\$$`), "a path is no regular expression", ""},
	{regexp.MustCompile("[*<>\\[\\]^`|\\\\]|[ \t]"), "", ""},
}

// Fault is what is wrong with a pattern that net/http.ServeMux would take, and that matches no
// request or none that its writer has in mind: "" if nothing is, or if the mux refuses it.
func Fault(pattern string) string {
	if hidden := invisible.FindString(pattern); hidden != "" {
		return fmt.Sprintf("it has the character %U, which is not to be seen: write it anew, with plain spaces", []rune(hidden)[0])
	}
	method, host, rest := Split(pattern)
	if rest == "" {
		return ""
	}
	if wrong := methodFault(method); wrong != "" {
		return wrong
	}
	if strings.HasSuffix(host, ":") && strings.HasPrefix(rest, "//") {
		return "a pattern has no scheme" + suggestion(method, strings.TrimPrefix(rest, "//"))
	}
	if ipv6.MatchString(host) { // the mux takes the brackets off where there is a port
		return "an address in brackets is found without a port alone: leave the host out" + suggestion(method, rest)
	}
	if strings.ContainsAny(host, "*:^~<>[]{}() \t") {
		return fmt.Sprintf("%q is no host: a host has no port, no wildcard and no space", host)
	}
	if strings.HasSuffix(host, ".") {
		return "a host has no dot at its end" + suggestion(method, strings.TrimRight(host, ".")+rest)
	}
	if host != "" && !strings.ContainsAny(host, ".:") && !strings.EqualFold(host, "localhost") {
		return fmt.Sprintf("a path begins with a slash, and %q would be a host", host) + suggestion(method, "/"+host+rest)
	}
	meant, what := rest, ""
	for _, one := range foreign {
		found := one.form.FindString(meant)
		if found == "" {
			continue
		}
		if what == "" {
			what = one.what
		}
		if one.what == "" { // no router's notation that is known here
			if what == "" {
				what = fmt.Sprintf("%q stands in no path", found)
			}
			return what + ownText
		}
		instead := one.instead
		if instead == "" && strings.HasSuffix(found, "$") {
			instead = strings.TrimSuffix(found, "$")
		}
		meant = one.form.ReplaceAllString(meant, instead)
	}
	if what != "" {
		return what + suggestion(method, host+meant) + ownText
	}
	return neverMatched(method, host, rest, pattern)
}

// ownText says how a path is written that really has such characters.
const ownText = " (Text of the path itself is percent-encoded: %3A for :, %2A for *, %3F for ?)"

// invisible matches white space and characters without width that no request has as they stand.
var invisible = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x{7f}-\x{a0}\p{Cf}\p{Zl}\p{Zp}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}]`)

var ipv6 = regexp.MustCompile(`^\[[0-9a-fA-F:.]+\]$`)

// suggestion is the pattern that may be meant, if net/http.ServeMux takes it.
func suggestion(method, rest string) string {
	meant := strings.TrimLeft(method+" "+rest, " ")
	if _, _, asked := Split(meant); asked == "" || Register(http.NewServeMux(), meant) != nil {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", meant)
}

// methodFault is what is wrong with a method, "" if nothing is.
func methodFault(method string) string {
	upper := strings.ToUpper(method)
	switch {
	case method == "" || slices.Contains(methods, method):
		return ""
	case slices.Contains(methods, upper):
		return fmt.Sprintf("a method is written in capitals: did you mean %q?", upper)
	case upper == http.MethodConnect || upper == "PRI":
		return fmt.Sprintf("%s asks for no path", upper)
	case upper == "ANY" || upper == "ALL" || method == "*":
		return "for all methods leave the method out"
	case strings.ContainsAny(method, ",|"):
		return "one route has one method, or none for all of them"
	}
	if nearest := names.Nearest(upper, usual, 2); nearest != "" {
		return fmt.Sprintf("%q is no method: did you mean %q?", method, nearest)
	}
	return fmt.Sprintf("%q is no method; to guard one that is not registered, leave the method out, which stands for all", method)
}

// neverMatched finds a pattern whose own example does not match it, such as one with a dot segment:
// the mux cleans a path before it looks.
func neverMatched(method, host, rest, pattern string) string {
	example := wildcard.ReplaceAllString(strings.ReplaceAll(rest, "{$}", ""), "x")
	mux := http.NewServeMux()
	if Register(mux, pattern) != nil {
		return "" // it is refused with a better reason
	}
	asked := method
	if method == "" {
		asked = http.MethodPost
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(asked + " " + example + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
	if err != nil {
		return "no request can have this host and path"
	}
	if _, found := mux.Handler(r); found != pattern {
		return "no request can match it" + suggestion(method, host+Cleaned(rest))
	}
	return ""
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// Cleaned is a path with repeated slashes and dot segments resolved. A slash at its end stays.
func Cleaned(from string) string {
	clean := path.Clean("/" + from)
	if strings.HasSuffix(from, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// Register adds a pattern to a mux. Where the mux panics it returns an error.
func Register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// IsSafe reports whether a method does nothing that matters if it is done twice (RFC 9110, 9.2.1).
func IsSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
