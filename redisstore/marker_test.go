package redisstore

import "testing"

func TestSlotsAreThoseOfACluster(t *testing.T) {
	if slot("123456789") != 0x31C3%slots { // the check value of CRC16/XMODEM
		t.Errorf("%d", slot("123456789"))
	}
	for n, tag := range tags() {
		if slot(tag) != n {
			t.Fatalf("tag %q of slot %d lies in %d", tag, n, slot(tag))
		}
	}
}
