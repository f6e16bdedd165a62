package access_test

import (
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/expect"
)

// wrong is a key of an id with a secret that is none.
func wrong(id string) string { return access.Key{ID: id, Secret: access.NewKey().Secret}.Text() }

func TestGuessesOfOneKeyFromOneAddressAreSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g access.Lockout
		here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		for i := range 20 {
			if wait := g.Failed(here, wrong("key")); wait > 0 {
				t.Fatalf("guess %d waits %v", i+1, wait)
			}
		}
		for range 100 { // one that is told to wait makes the wait no longer
			expect.MustEqual(t, "the wait after 20", g.Failed(here, wrong("key")), 3*time.Second)
		}
		for _, other := range []time.Duration{g.Failed(there, wrong("key")), g.Failed(here, wrong("other")), g.Failed(here, "junk")} {
			expect.Equal(t, "the wait of another address or key", other, 0)
		}
		time.Sleep(3 * time.Second)
		expect.Equal(t, "the wait after a rest", g.Failed(here, wrong("key")), 0)
		expect.Equal(t, "the wait after one more", g.Failed(here, wrong("key")), 3*time.Second)
		time.Sleep(time.Hour)
		for range 20 {
			expect.Equal(t, "the wait after an hour", g.Failed(here, wrong("key")), 0)
		}
		expect.Equal(t, "the wait after an hour and 20", g.Failed(here, wrong("key")), 3*time.Second)
	})
}

// Who invents ids is slowed by its address.
func TestGuessesOfManyKeysFromOneAddressAreSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g access.Lockout
		here := netip.MustParseAddr("192.0.2.1")
		free := 0
		for i := range 10_000 {
			if g.Failed(here, wrong("k"+strconv.Itoa(i))) == 0 {
				free++
			}
		}
		expect.Equal(t, "wrong keys of as many ids from one address that need not wait, of 10000", free, 100)
		time.Sleep(30 * time.Second)
		for i := range 10_000 {
			if g.Failed(here, wrong("l"+strconv.Itoa(i))) == 0 {
				free++
			}
		}
		expect.Equal(t, "the same after half a minute, of 20000", free, 110)
	})
}

func TestGuessesAreRememberedInBoundedMemory(t *testing.T) {
	var g access.Lockout
	secret := access.NewKey().Secret
	from := netip.MustParseAddr("2001:db8::").As16()
	for i := range 100_000 {
		from[4], from[5], from[6] = byte(i>>16), byte(i>>8), byte(i)
		g.Failed(netip.AddrFrom16(from), access.Key{ID: "k" + strconv.Itoa(i), Secret: secret}.Text())
	}
	if n := g.Len(); n > 8192 {
		t.Errorf("%d are remembered", n)
	}
}

// A client that guesses as fast as it is answered is held up; beyond a number, answers are not
// held, so that they take no places of others.
func TestAnswersToGuessesAreHeldBackInBoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g access.Lockout
		var held, atOnce atomic.Int64
		var callers sync.WaitGroup
		began := time.Now()
		for i := range 1000 {
			from := netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 50)})
			callers.Go(func() {
				if g.Hold(t.Context(), from) {
					held.Add(1)
				} else {
					atOnce.Add(1)
				}
			})
		}
		callers.Wait()
		expect.Equal(t, "answers that are held, of 1000 of 50 addresses", held.Load(), 64)
		expect.Equal(t, "answers that are not", atOnce.Load(), 936)
		expect.Equal(t, "how long they are held", time.Since(began), time.Second)
		for range 9 {
			callers.Go(func() { g.Hold(t.Context(), netip.MustParseAddr("192.0.2.1")) })
		}
		synctest.Wait()
		expect.Equal(t, "a ninth answer of one address is held", g.Hold(t.Context(), netip.MustParseAddr("192.0.2.1")), false)
		callers.Wait()
		expect.Equal(t, "what is remembered of those that were held", g.Len(), 0)
	})
}
