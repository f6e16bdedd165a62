package frontdoor

import (
	"net/http"
	"net/netip"
	"strings"
)

// NoPage is the Content-Security-Policy of an answer that is no page, or a page without styles: if
// a browser shows it, it runs, loads and sends nothing, and no other page frames it.
const NoPage = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// noSniff and noPage are shared by all answers: no code changes a header's values in place.
var noSniff, noPage = []string{"nosniff"}, []string{NoPage}

// Harden makes a browser trust an answer's Content-Type alone and, if the request came by TLS, use
// only TLS for a year. A page that needs more sets its own policy instead of NoPage.
//
// Strict-Transport-Security holds for all ports of a name, so localhost does not get it, where
// other programs may be; browsers ignore it for an address.
func Harden(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header["X-Content-Type-Options"], header["Content-Security-Policy"] = noSniff, noPage
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
