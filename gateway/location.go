package gateway

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
)

// outside rewrites the headers of an answer that name the upstream, as Apache's ProxyPassReverse
// does: a client that followed them would leave the gateway, and no key would guard it there. What
// is left is a path, which the client reads at the address that it has asked.
func (u Upstream) outside(answer *http.Response) {
	for _, name := range []string{"Location", "Content-Location"} {
		text := answer.Header.Get(name)
		if text == "" {
			continue
		}
		if path, is := u.pathOf(text, answer.Request.Host); is {
			answer.Header.Set(name, path)
		}
	}
}

// pathOf is the path at the gateway of a reference to the upstream. sent is the Host that the
// upstream was asked under.
func (u Upstream) pathOf(text, sent string) (path string, is bool) {
	to, err := url.Parse(text)
	if err != nil || to.Opaque != "" {
		return "", false
	}
	if to.Host != "" {
		scheme := cmp.Or(to.Scheme, u.url.Scheme)
		host := hostAndPort(to.Host, scheme)
		if host != hostAndPort(u.url.Host, u.url.Scheme) && host != hostAndPort(sent, scheme) {
			return "", false
		}
	}
	prefix := strings.TrimSuffix(u.url.EscapedPath(), "/")
	within, under := strings.CutPrefix(to.EscapedPath(), prefix)
	if to.Host == "" && (prefix == "" || !under || !strings.HasPrefix(within, "/")) {
		return "", false // it is the client's already, or relative to what the client has asked
	}
	if !under || within != "" && within[0] != '/' {
		// below no path of the gateway: it is not found there, and nothing runs
		within = to.EscapedPath()
	}
	if !strings.HasPrefix(within, "/") || strings.HasPrefix(within, "//") {
		within = "/" + strings.TrimLeft(within, "/") // two slashes would name a host
	}
	if to.RawQuery != "" {
		within += "?" + to.RawQuery
	}
	if to.Fragment != "" {
		within += "#" + to.EscapedFragment()
	}
	return within, true
}

// hostAndPort is a host in small letters, without the port that its scheme has by itself.
func hostAndPort(host, scheme string) string {
	host = strings.ToLower(host)
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}
