package gateway

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
)

// net/http.ServeMux takes the notations of other routers for plain text, and any word for a method:
// a route that is written so guards nothing. What stands here finds such patterns.

// usual are the methods that are suggested for an unknown one.
var usual = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions}

// methods are those that IANA has registered, without CONNECT and PRI, which the gateway refuses.
var methods = append([]string{
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE",
	"ORDERPATCH", "PROPFIND", "PROPPATCH", "QUERY", "REBIND", "REPORT", "SEARCH", "TRACE", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
}, usual...)

// split takes a pattern apart, as net/http.ServeMux does. path is "" where it refuses the pattern.
func split(pattern string) (method, host, path string) {
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
	{regexp.MustCompile(`[^/{]\$$`), "a path is no regular expression", ""},
	{regexp.MustCompile("[*<>\\[\\]^`|\\\\]|[ \t]"), "", ""},
}

// patternFault is what is wrong with a pattern that net/http.ServeMux would take, and that matches
// no request or none that its writer has in mind: "" if nothing is, or if the mux refuses it.
func patternFault(pattern string) string {
	method, host, path := split(pattern)
	if path == "" {
		return ""
	}
	if wrong := methodFault(method); wrong != "" {
		return wrong
	}
	if strings.HasSuffix(host, ":") && strings.HasPrefix(path, "//") {
		return "a pattern has no scheme" + suggestion(method, strings.TrimPrefix(path, "//"))
	}
	if strings.ContainsAny(host, "*:^~<>[]{}() \t") && !ipv6.MatchString(host) {
		return fmt.Sprintf("%q is no host: a host has no port, no wildcard and no space", host)
	}
	meant, what := path, ""
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
	return neverMatched(method, host, path, pattern)
}

// ownText says how a path is written that really has such characters.
const ownText = " (Text of the path itself is percent-encoded: %3A for :, %2A for *, %3F for ?)"

var ipv6 = regexp.MustCompile(`^\[[0-9a-fA-F:.]+\]$`)

// suggestion is the pattern that may be meant, if net/http.ServeMux takes it.
func suggestion(method, rest string) string {
	meant := strings.TrimLeft(method+" "+rest, " ")
	if _, _, path := split(meant); path == "" || register(http.NewServeMux(), meant) != nil {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", meant)
}

func methodFault(method string) string {
	upper := strings.ToUpper(method)
	switch {
	case method == "" || slices.Contains(methods, method):
		return ""
	case slices.Contains(methods, upper):
		return fmt.Sprintf("a method is written in capitals: did you mean %q?", upper)
	case upper == http.MethodConnect || upper == "PRI":
		return fmt.Sprintf("the gateway refuses %s itself", upper)
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
func neverMatched(method, host, path, pattern string) string {
	example := wildcard.ReplaceAllString(strings.ReplaceAll(path, "{$}", ""), "x")
	mux := http.NewServeMux()
	if register(mux, pattern) != nil {
		return "" // it is refused with a better reason
	}
	asked := method
	if method == "" {
		asked = http.MethodPost
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(asked + " " + example + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
	if err != nil || !frontdoor.WellFormedTarget(r) {
		return "no request can have this host and path"
	}
	if (asked == http.MethodGet || asked == http.MethodHead) && (r.URL.Path == policyPath || problemPage(r.URL.Path) != "") {
		return "the gateway answers this path itself"
	}
	if _, found := mux.Handler(r); found != pattern {
		return "no request can match it" + suggestion(method, host+cleaned(path))
	}
	return ""
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)
