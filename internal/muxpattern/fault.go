package muxpattern

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/names"
)

// Fault is what is wrong with a pattern that net/http.ServeMux would refuse, or that matches no
// request or none that its writer has in mind: "" if nothing is.
func Fault(pattern string) string {
	found := judge(pattern)
	if found.what == "" {
		return ""
	}
	text := found.what
	if meant := found.resolved(); meant != "" {
		text += fmt.Sprintf("; did you mean %q?", meant)
	}
	if found.isText {
		text += " (Text of the path itself is percent-encoded: %3A for :, %2A for *, %3F for ?)"
	}
	return text
}

// finding is what is wrong with a pattern; without what, nothing is.
type finding struct {
	what   string
	meant  string // the pattern without this fault; it may have others. "" = that is not known
	isText bool   // the characters may stand for themselves, percent-encoded
}

// maxFaults is how many faults of one pattern are mended for what it may mean.
const maxFaults = 20

// resolved is the pattern that may be meant, without any fault; "" if there is none.
func (f finding) resolved() string {
	for range maxFaults {
		if f.meant == "" {
			return ""
		}
		next := judge(f.meant)
		if next.what == "" {
			return f.meant
		}
		f = next
	}
	return ""
}

// judge finds the first fault of a pattern.
func judge(pattern string) finding {
	if found := ofCharacters(pattern); found.what != "" {
		return found
	}
	method, host, rest := Split(pattern)
	if rest == "" {
		return withoutPath(method, host)
	}
	for _, find := range []func(method, host, rest string) finding{ofMethod, ofHost, ofOthers, ofDots, ofWildcards, ofText, ofMux} {
		if found := find(method, host, rest); found.what != "" {
			return found
		}
	}
	return finding{}
}

func withoutPath(method, host string) finding {
	if slices.Contains(methods, strings.ToUpper(host)) || host == "" {
		return finding{what: `it has no path: a method and a path belong here, such as "POST /payments"`}
	}
	return finding{what: "a path begins with a slash", meant: join(method, "/"+host)}
}

// usual are the methods that are suggested for an unknown one.
var usual = []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS"}

// methods are those that IANA has registered, without CONNECT and PRI, which ask for no path.
var methods = append([]string{
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY",
	"MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPFIND", "PROPPATCH", "QUERY", "REBIND",
	"REPORT", "SEARCH", "TRACE", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
}, usual...)

func ofMethod(method, host, rest string) finding {
	upper := strings.ToUpper(method)
	switch {
	case method == "" || slices.Contains(methods, method):
		return finding{}
	case strings.Contains(method, "/"): // a path with a space in it
		return finding{what: `" " stands in no path`, isText: true}
	case slices.Contains(methods, upper):
		return finding{what: "a method is written in capitals", meant: join(upper, host+rest)}
	case upper == http.MethodConnect || upper == "PRI":
		return finding{what: upper + " asks for no path"}
	case upper == "ANY" || upper == "ALL" || method == "*":
		return finding{what: "for all methods leave the method out", meant: host + rest}
	case strings.ContainsAny(method, ",|"):
		return finding{what: "one route has one method, or none for all of them"}
	}
	for i, char := range method {
		if char >= 0x80 {
			return finding{what: fmt.Sprintf("its method has the character %U, and a method has plain letters", []rune(method[i:])[0])}
		}
	}
	if nearest := names.Nearest(upper, usual, 2); nearest != "" {
		return finding{what: fmt.Sprintf("%q is no method", method), meant: join(nearest, host+rest)}
	}
	return finding{what: fmt.Sprintf("%q is no method; to guard one that is not registered, leave the method out, which stands for "+
		"all", method)}
}

// dots are full stops of other scripts that a browser takes for a dot of a host (UTS 46).
const dots = "\u3002\uff61"

var (
	ipv6      = regexp.MustCompile(`^\[[0-9a-fA-F:.]+\]$`)
	otherDot  = regexp.MustCompile("[" + dots + "]")
	plainHost = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
)

func ofHost(method, host, rest string) finding {
	switch {
	case strings.HasSuffix(host, ":") && strings.HasPrefix(rest, "//"):
		return finding{what: "a pattern has no scheme", meant: join(method, strings.TrimPrefix(rest, "//"))}
	case ipv6.MatchString(host): // the mux takes the brackets off where there is a port
		return finding{what: "an address in brackets is found without a port alone: leave the host out", meant: join(method, rest)}
	case strings.HasPrefix(host, "{"):
		return finding{what: "a path begins with a slash", meant: join(method, "/"+host+rest)}
	case strings.ContainsAny(host, dots):
		return finding{
			what:  fmt.Sprintf("%q is no host: it has another dot than the plain one", host),
			meant: join(method, otherDot.ReplaceAllString(host, ".")+rest),
		}
	case strings.ContainsFunc(host, func(char rune) bool { return char >= 0x80 }):
		return finding{what: fmt.Sprintf("%q is no host: a name in another script is written in its form with xn--", host)}
	case !plainHost.MatchString(host):
		return finding{what: fmt.Sprintf("%q is no host: a host has no port, no wildcard and no space", host)}
	case strings.HasSuffix(host, "."):
		return finding{what: "a host has no dot at its end", meant: join(method, strings.TrimRight(host, ".")+rest)}
	case host != "" && !strings.Contains(host, ".") && !strings.EqualFold(host, "localhost"):
		return finding{what: fmt.Sprintf("a path begins with a slash, and %q would be a host", host), meant: join(method, "/"+host+rest)}
	case host != strings.ToLower(host):
		return finding{what: "a host has small letters", meant: join(method, strings.ToLower(host)+rest)}
	}
	return finding{}
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
	{regexp.MustCompile(`([^/{])\$$`), "a path is no regular expression", "$1"},
}

func ofOthers(method, host, rest string) finding {
	for _, one := range foreign {
		if one.form.MatchString(rest) {
			return finding{what: one.what, meant: join(method, host+one.form.ReplaceAllString(rest, one.instead)), isText: true}
		}
	}
	return finding{}
}

// ofDots finds a path with dot segments or slashes beside each other: the mux cleans a path before
// it looks.
func ofDots(method, host, rest string) finding {
	if clean := Cleaned(rest); clean != rest {
		return finding{what: "no request can match it: a path is cleaned before it is looked for", meant: join(method, host+clean)}
	}
	return finding{}
}

// notText matches what no path has as it stands.
var notText = regexp.MustCompile("[*<>\\[\\]^`|\\\\ \t]")

func ofText(_, _, rest string) finding {
	if found := notText.FindString(rest); found != "" {
		return finding{what: fmt.Sprintf("%q stands in no path", found), isText: true}
	}
	return finding{}
}

// ofMux finds a pattern that the mux refuses for another reason, and one whose own example does not
// match it.
func ofMux(method, host, rest string) finding {
	pattern := join(method, host+rest)
	mux := http.NewServeMux()
	if err := Register(mux, pattern); err != nil {
		return finding{what: "net/http refuses it: " + err.Error()}
	}
	example := wildcard.ReplaceAllString(strings.ReplaceAll(rest, "{$}", ""), "x")
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + example + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
	if err != nil {
		return finding{what: "no request can have this host and path"}
	}
	if _, found := mux.Handler(r); found != pattern {
		return finding{what: "no request can match it"}
	}
	return finding{}
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)
