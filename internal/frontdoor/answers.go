package frontdoor

import (
	"net/http"
	"net/netip"
	"strings"
)

// NoPage is the Content-Security-Policy of an answer that is no page, or one without styles: should
// a browser show it all the same, it runs, loads and sends nothing, and no other page shows it.
const NoPage = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Harden has a browser take an answer for what its Content-Type says and for nothing else, and,
// where the request came by TLS, ask by TLS alone for a year. A page that needs more says its own
// policy in place of NoPage.
//
// Strict-Transport-Security counts for a name with all of its ports, so it is not said to
// localhost, where other programs may be; browsers take none of an address.
func Harden(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", NoPage)
	if r.TLS != nil && isNamed(r.Host) {
		header.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// isNamed reports whether a Host is a name, and not one of this machine's.
func isNamed(host string) bool {
	name := hostname(host)
	_, err := netip.ParseAddr(name)
	return err != nil && name != "" && name != "localhost" && !strings.HasSuffix(name, ".localhost")
}
