package access_test

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/access"
)

func TestGuessesOfOneKeyFromOneAddressAreSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g access.Guesses
		here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		key, other := access.NewKey(), access.NewKey()
		guess := func() string { return access.Key{ID: key.ID, Secret: access.NewKey().Secret}.Text() }
		for i := range 20 {
			if wait := g.Wait(here, guess()); wait > 0 {
				t.Fatalf("guess %d waits %v", i+1, wait)
			}
			g.Failed(here, guess())
		}
		if wait := g.Wait(here, guess()); wait != 3*time.Second {
			t.Errorf("after 20: %v", wait)
		}
		if g.Wait(there, guess()) > 0 || g.Wait(here, other.Text()) > 0 || g.Wait(here, "junk") > 0 {
			t.Error("another address or another key waits as well")
		}
		time.Sleep(3 * time.Second)
		if wait := g.Wait(here, guess()); wait > 0 {
			t.Errorf("after a rest: %v", wait)
		}
		g.Failed(here, guess())
		if wait := g.Wait(here, guess()); wait != 3*time.Second {
			t.Errorf("after one more: %v", wait)
		}
		time.Sleep(time.Hour)
		for range 20 {
			g.Failed(here, guess())
		}
		if wait := g.Wait(here, guess()); wait != 3*time.Second {
			t.Errorf("after an hour all 20 are free again: %v", wait)
		}
	})
}

func TestGuessesAreRememberedInBoundedMemory(t *testing.T) {
	var g access.Guesses
	here := netip.MustParseAddr("2001:db8::")
	secret := access.NewKey().Secret
	for i := range 100_000 {
		g.Failed(here, access.Key{ID: "k" + strconv.Itoa(i), Secret: secret}.Text())
	}
	if n := g.Len(); n > 8192 {
		t.Errorf("%d are remembered", n)
	}
}
