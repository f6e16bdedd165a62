package lock

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A lock that a newer version has written is refused before redislock takes it, and a holder's
// renewal before redislock extends it.
func TestALockOfANewerVersionIsRefusedBeforeItIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		keys := locks.keys("a")
		newer := redisScript("redis.call('SET', KEYS[2], '@2:9.9.9 text') return {'ok'}")
		if _, err := onstore.Run(t.Context(), store, newer, keys[:2]); err != nil {
			t.Fatalf("a newer lock is written: %v", err)
		}
		_, err := locks.TryAcquire(t.Context(), "a", Request{})
		expect.Error(t, "TryAcquire", err, redisstore.ErrNewer)
		_, err = locks.Acquire(t.Context(), "a", Request{})
		expect.Error(t, "Acquire", err, redisstore.ErrNewer)
		expect.Equal(t, "keys", keysIn(t, store), 1)

		grant, err := locks.TryGrant(t.Context(), "b", Request{})
		expect.NoError(t, "TryGrant of b", err)
		if _, err := onstore.Run(t.Context(), store, newer, locks.keys("b")[:2]); err != nil {
			t.Fatalf("the lock b gets a newer format: %v", err)
		}
		left := redisScript("return {'ok', tostring(redis.call('PTTL', KEYS[1]))}")
		before, err := onstore.Run(t.Context(), store, left, locks.keys("b")[:1])
		expect.NoError(t, "PTTL of b before Renew", err)
		grant.TTL *= 2
		_, err = locks.Renew(t.Context(), grant)
		expect.Error(t, "Renew", err, redisstore.ErrNewer)
		after, err := onstore.Run(t.Context(), store, left, locks.keys("b")[:1])
		expect.NoError(t, "PTTL of b after Renew", err)
		expect.Equal(t, "remaining lease", after.Values(), before.Values())
		expect.Error(t, "Release", locks.Release(t.Context(), grant), redisstore.ErrNewer)
	})
}
