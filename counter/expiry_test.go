//go:build steps

package counter

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// A process that is paused between its two requests adds after the end: the counter begins again,
// and has an end again.
func TestCounterThatExpiresBetweenTwoStepsOfACallEnds(t *testing.T) {
	values := map[string]*int64{"that nobody has used": nil, "that is at 0": new(int64(0)), "that is below 0": new(int64(-5))}
	requests := map[string]Request{
		"plainly": {TTL: MinTTL}, "with a limit": {TTL: MinTTL, Limit: 9}, "with a request id": {TTL: MinTTL, RequestID: "order-1"},
	}
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		c := New(store, Config{})
		defer c.Close()
		for is, value := range values {
			for added, request := range requests {
				name := is + ", added to " + added
				key := strings.NewReplacer(" ", "-", ",", "").Replace(name)
				t.Run(name, func(t *testing.T) {
					if value != nil {
						expect.NoError(t, "Set", c.Set(t.Context(), key, *value, SetOptions{TTL: MinTTL, Back: true}))
					}
					atFirst(t, "counter: was opened", func() {
						expect.Eventually(t, "the counter has expired", func() bool {
							_, err := c.Get(context.Background(), key)
							return errors.Is(err, ErrNotFound)
						})
					})
					got, err := c.Add(t.Context(), key, request)
					expect.NoError(t, "Add", err)
					expect.Equal(t, "the values of Add", got, Range{1, 1})
					expect.Equal(t, "the counter stays for ever", ttlOf(t, store, c.key(key)) == "-1", false)
				})
			}
		}
	})
}

// atFirst has a test do something when a goroutine comes to a point for the first time.
func atFirst(t *testing.T, point string, do func()) {
	t.Helper()
	var passed atomic.Bool
	step.Hook(func(name string) {
		if name == point && passed.CompareAndSwap(false, true) {
			do()
		}
	})
	t.Cleanup(func() { step.Hook(nil) })
}

// ttlOf is a key's PTTL.
func ttlOf(t *testing.T, store *redisstore.Store, key string) string {
	t.Helper()
	pttl := scripts.New("pttl", "return {tostring(redis.call('PTTL', KEYS[1]))}")
	reply, err := onstore.Run(t.Context(), store, pttl, []string{key})
	expect.MustEqual(t, "the error of PTTL", err, nil)
	return reply[0]
}
