package network_test

import (
	"net/netip"
	"testing"

	"github.com/coatcheck/coatcheck/internal/network"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestAddressesOfOneCaller(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.2": "192.0.2.2/32",
		"2001:db8::1": "2001:db8::/64", "2001:db8::a:b:c:d": "2001:db8::/64", "2001:db8:0:1::1": "2001:db8:0:1::/64",
		"fe80::1%eth0": "fe80::/64", "::1": "::/64",
	} {
		expect.Equal(t, "the network of "+address, network.Of(netip.MustParseAddr(address)).String(), want)
	}
	expect.Equal(t, "the network of no address", network.Of(netip.Addr{}), netip.Prefix{})
}
