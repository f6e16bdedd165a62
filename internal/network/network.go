// Package network says which addresses are one caller's.
package network

import "net/netip"

// Of returns the network of an address: an IPv4 address alone, also where IPv6 writes it as
// ::ffff:192.0.2.1, and of IPv6 the /64, since its owner has all of its addresses. Of the zero
// address it is the zero prefix.
func Of(address netip.Addr) netip.Prefix {
	address, bits := address.Unmap().WithZone(""), 32
	if address.Is6() {
		bits = 64
	}
	network, _ := address.Prefix(bits) // no address has fewer bits
	return network
}
