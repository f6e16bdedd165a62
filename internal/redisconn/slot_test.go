package redisconn

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestSlotsAreThoseOfACluster(t *testing.T) {
	// the check value of CRC16/XMODEM
	expect.Equal(t, "slot of 123456789", Slot("123456789"), 0x31C3%Slots)
	for n, tag := range SlotTags() {
		if Slot(tag) != n {
			t.Fatalf("tag %q of slot %d lies in %d", tag, n, Slot(tag))
		}
	}
}
