//go:build check

package leasesim

import "testing"

const usual = full

// TestProtocolHoldsForLong runs the untagged tests of the protocol, with as many seeds as the flag
// says, where only the tests of tagged files are run.
func TestProtocolHoldsForLong(t *testing.T) {
	t.Run("every fault", TestProtocolHoldsUnderEveryFault)
	t.Run("mixed faults", TestProtocolHoldsUnderMixedFaults)
	t.Run("one fault", TestProtocolHoldsUnderOneFault)
	t.Run("two TTLs", TestClientsThatAskForTwoTTLs)
	t.Run("tokens", TestNoTokenIsClaimedTwice)
	t.Run("fewer acknowledgements", TestFewerAcknowledgements)
}
