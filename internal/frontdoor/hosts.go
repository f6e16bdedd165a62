package frontdoor

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// Hosts are the names under which a server answers, beside every address, localhost and what ends
// in .localhost: a name in small letters, "*.example.com" for all names below one, or "*" for every
// name.
//
// They are a defence against DNS rebinding: a page of evil.example whose name suddenly leads to the
// server's address has the server's origin, so that a browser hides nothing from it. Its requests
// have its own name as their Host. A page that was loaded from an address cannot do that. Addresses
// that lead to this machine, while a browser does not take them for loopback, are none of these
// unless they are named: 0.0.0.0, [::] and the form [::ffff:127.0.0.1]. With a request for one a
// browser may send no Sec-Fetch-Site.
type Hosts []string

var hostForm = lazyregexp.New(`^(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*)$`)

// CheckHost reports what is wrong with an entry of Hosts.
func CheckHost(name string) error {
	if len(name) > 253 || !hostForm().MatchString(name) {
		return errors.New("a host is a name in small letters and without a port, such as coatcheck.internal or *.example.com; * is " +
			"every name")
	}
	return nil
}

// Allow reports whether a request with this Host is to be answered. A request without a Host is: no
// browser sends one.
func (h Hosts) Allow(host string) bool {
	name := hostname(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if address, err := netip.ParseAddr(name); err == nil && !address.IsUnspecified() && !address.Is4In6() {
		return true
	}
	return slices.ContainsFunc(h, func(allowed string) bool {
		parent, below := strings.CutPrefix(allowed, "*")
		return allowed == name || below && strings.HasSuffix(name, parent)
	})
}

// hostname is a Host without port, brackets and the dot at its end, in small letters.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
