package frontdoor

import (
	"net/http"
	"net/url"
	"strings"
)

// WellFormedTarget reports whether a request's target has one of the forms that a server takes (RFC
// 9112, section 3.2): a path, a whole http or https URL with a host and without user information,
// or "*" with OPTIONS. net/http lets others through, such as "x:http://h/p", which it reads as an
// opaque URL with an empty path; a router would then find no route for the request.
func WellFormedTarget(r *http.Request) bool {
	switch target := r.RequestURI; {
	case r.URL.Opaque != "" || r.URL.User != nil || r.Method == http.MethodConnect:
		return false
	case strings.HasPrefix(target, "/"):
		return r.URL.Scheme == "" && r.URL.Host == ""
	case target == "*":
		return r.Method == http.MethodOptions
	default:
		return (r.URL.Scheme == "http" || r.URL.Scheme == "https") && r.URL.Host != ""
	}
}

// RawPath is the path as the client wrote it. URL.EscapedPath encodes a path anew if it holds a
// character that should have been encoded, and then an encoded slash beside it is none any more.
func RawPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}
