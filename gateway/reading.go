package gateway

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// asWritten is a request whose path keeps the encoding that its client gave it. URL.EscapedPath
// would encode the path anew if a character in it should have been encoded and is not, and an
// encoded slash beside that would be none any more.
func asWritten(r *http.Request) *http.Request {
	path := unencoded.ReplaceAllStringFunc(r.URL.RawPath, url.PathEscape)
	if path == r.URL.RawPath {
		return r
	}
	read := withPath(r, r.URL.Path)
	read.URL.RawPath = path
	return read
}

// unencoded matches what a path has to encode, its percent signs excepted.
var unencoded = regexp.MustCompile("[^!-~]|[\"#<>\\\\^`{|}]")

// afterAuthority is a path with two slashes in front as read by a server that resolves it like a
// link, as Node's new URL(request.url, base) does: the first segment is a host.
func afterAuthority(path string) (rest string, isThere bool) {
	if len(path) < 2 || !strings.ContainsRune(`/\`, rune(path[0])) || !strings.ContainsRune(`/\`, rune(path[1])) {
		return "", false
	}
	at := strings.IndexAny(strings.TrimLeft(path, `/\`), `/\`)
	if at < 0 {
		return "/", true
	}
	return strings.TrimLeft(path, `/\`)[at:], true
}

// withSlash is a pattern with a slash at its end, unless it has one or matches all paths below.
func withSlash(pattern string) string {
	for _, end := range []string{"/", "...}", "{$}"} {
		if strings.HasSuffix(pattern, end) {
			return pattern
		}
	}
	return pattern + "/{$}"
}

// fold is a pattern in small letters. Its method and the names of its wildcards stay.
func fold(pattern string) string {
	at := strings.IndexByte(pattern, ' ') + 1
	return pattern[:at] + patternPart.ReplaceAllStringFunc(pattern[at:], func(part string) string {
		if part[0] == '{' {
			return part
		}
		return strings.ToLower(part)
	})
}

// patternPart matches a wildcard of a pattern, or what is between two.
var patternPart = regexp.MustCompile(`\{[^}]*\}|[^{]+`)

// small is a request with its path in small letters.
func small(r *http.Request) *http.Request {
	lower := strings.ToLower(r.URL.Path)
	if lower == r.URL.Path {
		return r
	}
	read := withPath(r, lower)
	read.URL.RawPath = strings.ToLower(r.URL.RawPath)
	return read
}

func withPath(r *http.Request, path string) *http.Request {
	read, target := *r, *r.URL
	target.Path, target.RawPath = path, ""
	read.URL = &target
	return &read
}

// peculiar reports whether a server can read a request in another way than as it stands.
func peculiar(r *http.Request) bool {
	return r.URL.RawPath != "" || strings.ContainsAny(r.URL.Path, `;\`) || strings.ToUpper(r.Method) != r.Method || hostOf(r) != r.Host
}

// normalized is a request as the most lenient server may read it: percent-encoding decoded before
// the path is taken apart, backslashes for slashes, parameters after a semicolon dropped, repeated
// slashes and dot segments resolved, the method in capitals, and the host in small letters without
// the root's dot.
func normalized(r *http.Request) *http.Request {
	if !peculiar(r) {
		return r
	}
	segments := strings.Split(strings.ReplaceAll(r.URL.Path, `\`, "/"), "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	read := withPath(r, muxpattern.Cleaned(strings.Join(segments, "/")))
	read.Method, read.Host = strings.ToUpper(r.Method), hostOf(r)
	return read
}

// unresolved is a request whose dot segments are names like all others, as servers take them that
// resolve none: to Express "/../payments" is "/{shop}/payments".
func unresolved(r *http.Request) (read *http.Request, isThere bool) {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range segments {
		if segment == "." || segment == ".." {
			segments[i], isThere = strings.ReplaceAll(segment, ".", "%2e"), true
		}
	}
	if !isThere {
		return nil, false
	}
	read = withPath(r, r.URL.Path)
	read.URL.RawPath = strings.Join(segments, "/")
	return read, true
}

// depth is how many segments a path or a pattern has, without a slash at its end.
func depth(path string) int { return strings.Count(strings.TrimRight(path, "/"), "/") }

// hostOf is a request's host, in small letters and without the root's dot.
func hostOf(r *http.Request) string {
	host, port, found := strings.Cut(strings.ToLower(r.Host), ":")
	if host = strings.TrimSuffix(host, "."); found {
		host += ":" + port
	}
	return host
}

// withoutFormat is a path, or a pattern, without the last dot of its last segment and what follows
// it; a slash at the end stays. isThere is false where the segment has no dot, or begins with it.
func withoutFormat(path string) (bare string, isThere bool) {
	whole := strings.TrimRight(strings.TrimSuffix(path, "{$}"), "/")
	dot, slash := strings.LastIndexByte(whole, '.'), strings.LastIndexByte(whole, '/')
	if slash < 0 || dot < slash+2 {
		return "", false
	}
	return whole[:dot] + path[len(whole):], true
}
