package gateway

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// outside rewrites the headers of an answer that name the upstream, as Apache's ProxyPassReverse
// does: a client that followed them would leave the gateway, and no key would guard it there. What
// is left is a path, which the client reads at the address that it has asked. asked is the client's
// Host.
func (u Upstream) outside(answer *http.Response, asked string) {
	for _, name := range []string{"Location", "Content-Location"} {
		text := answer.Header.Get(name)
		if text == "" {
			continue
		}
		if path, is := u.pathOf(text, answer.Request.Host); is {
			answer.Header.Set(name, u.otherScheme(text, asked, answer.Request.Header)+path)
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
		if at := placeOf(to.Host, scheme); !u.is(at) && at != placeOf(sent, scheme) {
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

// otherScheme is what comes before a path at the gateway where a reference to the upstream asks for
// another scheme than the client and the upstream use, as one that sends its clients on to https;
// else "". The headers sent to the upstream tell of the client.
func (u Upstream) otherScheme(text, asked string, sent http.Header) string {
	scheme, _, isWhole := strings.Cut(strings.ToLower(text), "://")
	if !isWhole || scheme != "http" && scheme != "https" || scheme == u.url.Scheme || scheme == sent.Get("X-Forwarded-Proto") {
		return ""
	}
	return scheme + "://" + cmp.Or(sent.Get(forwardedHost), asked)
}

// place is where a server is asked: its host, normalised, and its port.
type place struct{ host, port string }

// placeOf reads a host with its port, or without the one that its scheme has by itself.
func placeOf(host, scheme string) place {
	at := url.URL{Host: host}
	name := strings.TrimSuffix(strings.ToLower(at.Hostname()), ".")
	if address, err := netip.ParseAddr(name); err == nil {
		name = address.Unmap().String()
	}
	usual := "80"
	if scheme == "https" {
		usual = "443"
	}
	return place{name, cmp.Or(at.Port(), usual)}
}

// isLoopback reports whether the host is this machine by whatever name.
func (p place) isLoopback() bool {
	address, err := netip.ParseAddr(p.host)
	return err == nil && address.IsLoopback() || p.host == "localhost" || strings.HasSuffix(p.host, ".localhost")
}

// is reports whether a place is the upstream: its own host and port, or that port of this machine,
// by another name, if the upstream is on it. Were it elsewhere, a loopback address could be the
// client's machine, as that of an app which waits for a login.
func (u Upstream) is(at place) bool {
	own := placeOf(u.url.Host, u.url.Scheme)
	return at == own || u.socket == "" && own.isLoopback() && at.isLoopback() && at.port == own.port
}
