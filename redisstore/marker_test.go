package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
)

func TestSlotsAreThoseOfACluster(t *testing.T) {
	// the check value of CRC16/XMODEM
	expect.Equal(t, "slot of 123456789", slot("123456789"), 0x31C3%slots)
	for n, tag := range tags() {
		if slot(tag) != n {
			t.Fatalf("tag %q of slot %d lies in %d", tag, n, slot(tag))
		}
	}
}

func TestMarkerLiesInTheSlotOfTheName(t *testing.T) {
	alone, cluster := &Store{mode: Standalone, prefix: DefaultPrefix}, &Store{mode: Cluster, prefix: DefaultPrefix}
	if alone.Marker("counter", "a") != alone.Marker("counter", "b") || alone.Marker("counter", "a") == alone.Marker("other", "a") {
		t.Error("a store that is no cluster has one marker of a kind")
	}
	seen := map[string]bool{}
	for _, name := range []string{"a", "b", "orders", "x:y", "~"} {
		marker := cluster.Marker("counter", name)
		_, tag, _ := strings.Cut(marker, "{")
		if tag, _, _ = strings.Cut(tag, "}"); slot(tag) != slot(name) {
			t.Errorf("%s of %s lies in slot %d, not %d", marker, name, slot(tag), slot(name))
		}
		seen[marker] = true
	}
	expect.Equal(t, fmt.Sprintf("number of markers, which are %v", seen), len(seen), 5)
}
