package onstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMarkerLiesInTheSlotOfTheName(t *testing.T) {
	alone, cluster := at(t, "redis://127.0.0.1"), at(t, "redis+cluster://127.0.0.1")
	if SlotKey(alone, "counter", "marker", "a") != SlotKey(alone, "counter", "marker", "b") ||
		SlotKey(alone, "counter", "marker", "a") == SlotKey(alone, "other", "marker", "a") {
		t.Error("a store that is no cluster has one marker of a kind")
	}
	seen := map[string]bool{}
	for _, name := range []string{"a", "b", "orders", "x:y", "~"} {
		marker := SlotKey(cluster, "counter", "marker", name)
		_, tag, _ := strings.Cut(marker, "{")
		if tag, _, _ = strings.Cut(tag, "}"); redisconn.Slot(tag) != redisconn.Slot(name) {
			t.Errorf("%s of %s lies in slot %d, not %d", marker, name, redisconn.Slot(tag), redisconn.Slot(name))
		}
		seen[marker] = true
	}
	expect.Equal(t, fmt.Sprintf("number of markers, which are %v", seen), len(seen), 5)
}
