package scripts_test

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

func TestStateOfARestoredStoreCountsAsLostOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.StoreRestored, openKeys[2:3]), "none")
		first := b.at(opening{}, "", false)
		b.at(opening{}, "", false)
		b.do("SET", openKeys[0], "41")
		b.lease(lease{nonce: "n0"})
		for range 2 { // a repeat is harmless
			want(t, b.run(scripts.StoreRestored, openKeys[2:3]), "marked")
			want(t, b.run(scripts.StoreRestored, poolKeys[:1]), "marked")
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
		want(t, b.run(scripts.StoreRestored, openKeys[2:3]), "marked")
		b.at(opening{}, "1041", true)
	})
}

func TestPlacesThatAreGoneLeaveTheirWord(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const word = "0a:0b:0::20:missing:r1@10.0.0.1:1,@10.0.0.2:1"
		key := openKeys[2:3]
		b.do("SET", key[0], word+" era 7")
		places := b.run(scripts.StorePlaces, key)
		slices.Sort(places)
		expect.Equal(t, "the places", places, []string{"10.0.0.1:1", "10.0.0.2:1", "noted"})
		want(t, b.run(scripts.StoreLeave, key, "10.0.0.3:1"), "none")
		want(t, b.run(scripts.StoreLeave, key, "10.0.0.3:1,10.0.0.2:1"), "left")
		want(t, b.run(scripts.StorePlaces, key), "noted", "10.0.0.1:1")
		expect.Equal(t, "the marker", b.do("GET", key[0]), any("0a:0b:0::20:missing:r1@10.0.0.1:1 era 7"))
	})
}
