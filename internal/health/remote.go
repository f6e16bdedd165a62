package health

import (
	"net/http"
	"net/netip"
)

// FromThisMachine reports whether a request has come from a loopback address.
func FromThisMachine(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}
