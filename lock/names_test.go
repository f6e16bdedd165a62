package lock

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// listed fails the test unless the list of names is as wanted.
func listed(t *testing.T, when string, locks *Locks, want ...string) {
	t.Helper()
	names, _, err := locks.List(t.Context(), "", "", 10)
	expect.Error(t, "Names "+when, err, nil)
	expect.Equal(t, "Names "+when, len(names), len(want))
	if len(names) == len(want) && len(want) > 0 {
		expect.Equal(t, "Names "+when, names, want)
	}
}

// A lock that is renewed as a value, as the service does it for its clients, is listed for as long
// as it is held.
func TestLockThatIsRenewedAsAValueStaysListed(t *testing.T) {
	for _, mode := range []Mode{ModeExclusive, ModeShared} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			grant, err := locks.TryGrant(t.Context(), "renewed", Request{Mode: mode, TTL: 30 * time.Second})
			expect.Error(t, "Grant", err, nil)
			for range 10 {
				time.Sleep(10 * time.Second)
				// as another process does
				_, err = locks.Renew(t.Context(), Grant{Name: "renewed", Token: grant.Token, TTL: 30 * time.Second})
				expect.Error(t, "Renew", err, nil)
			}
			listed(t, "after several TTLs with renewals", locks, "renewed")
			expect.Error(t, "Release", locks.Release(t.Context(), grant), nil)
			listed(t, "after the release", locks)
		})
	}
}

// Of several holders one leaves: the lock is listed until the last has. A release that comes too
// late takes no name from the list.
func TestLockIsListedUntilTheLastHolderLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		grant, err := locks.TryGrant(t.Context(), "shared", Request{Mode: ModeShared, TTL: time.Hour})
		expect.Error(t, "Grant", err, nil)
		held, last := must(t, locks, "shared", Request{Mode: ModeShared}), must(t, others, "shared", Request{Mode: ModeShared})
		time.Sleep(2 * worthListing)
		expect.Error(t, "Release of the first", locks.Release(t.Context(), grant), nil)
		listed(t, "after the first has left", locks, "shared")
		release(t, held)
		listed(t, "after the second has left", locks, "shared")
		wantIs(t, locks.Release(t.Context(), grant), ErrLost)
		listed(t, "after a release that was done before", locks, "shared")
		release(t, last)
		listed(t, "after the last has left", locks)
	})
}

// A lock that goes to the next in line stays on the list, whichever way it is held.
func TestLockThatIsHandedOverStaysListed(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		grant, err := locks.TryGrant(t.Context(), "handed", Request{TTL: time.Hour})
		expect.Error(t, "Grant", err, nil)
		next := settle(t, wait(t, others, "handed", Request{TTL: time.Hour}))
		expect.Error(t, "Release", locks.Release(t.Context(), grant), nil)
		heir := next.granted(t)
		listed(t, "after it was handed over", locks, "handed")
		release(t, heir)
		// it was listed for its claim window, and not longer, as it did not hold for long
		time.Sleep(2 * defaultWindow)
		listed(t, "after the last release", locks)
	})
}

// The next holder is listed before the one before it takes the name off.
func TestNameThatTheNextHolderHasNotedStaysListed(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		for _, mode := range []Mode{ModeExclusive, ModeShared} {
			grant, err := others.TryGrant(t.Context(), "noted", Request{Mode: mode, TTL: time.Hour})
			expect.Error(t, "Grant", err, nil)
			locks.unlist(t.Context(), "noted") // the end of a Release
			listed(t, "after the release of the holder before", locks, "noted")
			expect.Error(t, "Release", others.Release(t.Context(), grant), nil)
			listed(t, "after the last release", locks)
		}
	})
}
