package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/idempotency"
)

// written are the headers that the gateway writes itself.
var written = []string{askHeader, idempotency.FenceHeader, idempotency.OperationHeader, requestIDHeader, statusTextHeader}

// framing are the headers that delimit and address a request. net/http writes them.
var framing = []string{"Content-Length", "Transfer-Encoding", "Trailer", "Host", "Connection", "Expect"}

// rerouting are the headers by which frameworks take another path, prefix or method than those of
// the request line. A service must not be set to do so: this is a second line.
var rerouting = []string{
	"X-Original-Url", "X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Forwarded-Prefix", "X-Script-Name",
	"Script-Name", "Path-Info",
}

// origin are headers in which a proxy says how a client came, besides those that begin with
// X-Forwarded.
var origin = []string{"X-Scheme", "X-Url-Scheme", "Front-End-Https"}

// dropListed drops the headers that a request's Connection lists (RFC 9110, 7.6.1): they are for
// one connection, and the service does not get them. Upgrade and TE stay: the proxy answers for
// them itself.
func dropListed(header http.Header) {
	for name := range strings.SplitSeq(strings.Join(header.Values("Connection"), ","), ",") {
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if name != "Connection" && name != "Upgrade" && name != "Te" {
			delete(header, name)
		}
	}
}

// dropMisleading drops what a client sent under a name that means something else to a service: of
// the gateway itself, of another proxy, or of its own request line. So are names with another
// character than a letter, a digit or a hyphen, as nginx does: CGI and WSGI cannot tell X_A from
// X-A.
func (g *Gateway) dropMisleading(header http.Header) {
	for name := range header {
		if slices.Contains(written, name) || g.misleads(name) && !slices.Contains(g.config.PassHeaders, name) {
			delete(header, name)
		}
	}
}

// letters are the characters of names that are the same everywhere.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"

func (g *Gateway) misleads(name string) bool {
	if strings.Trim(name, letters) != "" || slices.Contains(rerouting, name) {
		return true
	}
	return !g.config.TrustForwarded && (strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(origin, name))
}
