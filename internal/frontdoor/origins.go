package frontdoor

import (
	"net/http"
	"slices"
	"strings"
)

// Origins are the origins whose pages may send requests that other pages may not. It is read-only.
type Origins struct {
	list  []string
	guard http.CrossOriginProtection
}

// NewOrigins returns origins, each as a browser sends it: https://shop.example. One that no browser
// sends is none of them.
func NewOrigins(list []string) *Origins {
	o := &Origins{}
	for _, origin := range list {
		if o.guard.AddTrustedOrigin(origin) == nil {
			o.list = append(o.list, origin)
		}
	}
	return o
}

// None reports whether there are none.
func (o *Origins) None() bool { return len(o.list) == 0 }

// Has reports whether an origin is one of them.
func (o *Origins) Has(origin string) bool { return slices.Contains(o.list, origin) }

// Foreign reports whether a page of another origin than the server's and these had a browser send a
// request, whatever its method is, as Sec-Fetch-Site says, or else Origin. A browser sends the
// former only by https and to this machine, and neither with a GET of an image by http to another:
// such a request is not recognized.
func (o *Origins) Foreign(r *http.Request) bool {
	written := *r
	written.Method = http.MethodPost // CrossOriginProtection lets each GET through
	return o.guard.Check(&written) != nil
}

var noOrigins = NewOrigins(nil)

// ForOperators wraps a handler for the operator, which asks for no key. It refuses requests that a
// page may have made a browser send: under a name outside of hosts, or from another origin. It
// hardens the answers.
func ForOperators(hosts func() Hosts, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Harden(w, r)
		// the list of profiles has styles
		w.Header().Set("Content-Security-Policy", strings.Replace(NoPage, ";", "; style-src 'unsafe-inline';", 1))
		switch {
		case !hosts().Allow(r.Host):
			http.Error(w, HostRule, http.StatusForbidden)
		case noOrigins.Foreign(r):
			http.Error(w, "a page of another origin may not ask for this from a browser", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// HostRule is the advice for a caller that was refused for its Host.
const HostRule = "this name is not one of the server's: it answers under its addresses, under localhost, and under the names of " +
	"--allowed-hosts"
