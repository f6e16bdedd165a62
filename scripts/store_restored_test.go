package scripts_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

func TestStateOfARestoredStoreCountsAsLostOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.StoreRestored, openKeys[2:3], "restored"), "none")
		first := b.at(opening{}, "", false)
		b.at(opening{}, "", false)
		b.do("SET", openKeys[0], "41")
		b.lease(lease{nonce: "n0"})
		for range 2 { // a repeat is harmless
			want(t, b.run(scripts.StoreRestored, openKeys[2:3], "restored"), "marked")
			want(t, b.run(scripts.StoreRestored, poolKeys[:1], "restored"), "marked")
		}
		moved := b.at(opening{era: first.era}, "1041", true)
		b.at(opening{era: moved.era}, "1041", false)
		if reply := b.acquire(lease{nonce: "n1"}); reply[0] != "quarantined" || reply[2] != "restored" {
			t.Errorf("a lease of a pool that was restored: got %q, want quarantined, since it was restored", reply)
		}
		b.pass(2 * hour)
		b.lease(lease{nonce: "n1"})
	})
}

func TestStateOfARestoredStoreIsLostAlsoWhereRestartsAreTrusted(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.facts = "trust 0 some alone - -"
		b.at(opening{}, "", false)
		b.do("SET", openKeys[0], "41")
		want(t, b.run(scripts.StoreRestored, openKeys[2:3], "restored"), "marked")
		b.at(opening{}, "1041", true)
	})
}
