package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMarkerLiesInTheSlotOfTheName(t *testing.T) {
	alone, cluster := &Store{mode: ModeStandalone, prefix: defaultPrefix}, &Store{mode: ModeCluster, prefix: defaultPrefix}
	if alone.SlotKey("counter", "marker", "a") != alone.SlotKey("counter", "marker", "b") || alone.SlotKey("counter", "marker", "a") == alone.SlotKey("other", "marker", "a") {
		t.Error("a store that is no cluster has one marker of a kind")
	}
	seen := map[string]bool{}
	for _, name := range []string{"a", "b", "orders", "x:y", "~"} {
		marker := cluster.SlotKey("counter", "marker", name)
		_, tag, _ := strings.Cut(marker, "{")
		if tag, _, _ = strings.Cut(tag, "}"); redisconn.Slot(tag) != redisconn.Slot(name) {
			t.Errorf("%s of %s lies in slot %d, not %d", marker, name, redisconn.Slot(tag), redisconn.Slot(name))
		}
		seen[marker] = true
	}
	expect.Equal(t, fmt.Sprintf("number of markers, which are %v", seen), len(seen), 5)
}
