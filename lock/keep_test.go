package lock

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The lease that remains may be longer than the TTL or shorter, and gets no further renewal.
func keeps(t *testing.T, store *redisstore.Store) {
	mine, others := open(t, store, Config{}), open(t, store, Config{})
	for _, request := range []Request{{TTL: time.Minute}, {TTL: time.Minute, Mode: ModeShared}, {TTL: time.Minute, Mode: ModePermits}} {
		name := "kept-" + string(request.Mode)
		long := must(t, mine, name, request)
		for range 2 { // again does nothing
			expect.Equal(t, "error of ReleaseAfter", long.ReleaseAfter(t.Context(), time.Hour), nil)
		}
		expect.Equal(t, "error of Release after ReleaseAfter", long.Release(t.Context()), nil)
		wantIs(t, long.Err(), ErrReleased)
		wantHeld(t, others, name, Request{})
		shown := info(t, others, name)
		expect.MustEqual(t, "number of holders", len(shown.Holders), 1)
		if left := shown.Holders[0].Until.Sub(shown.Now); left < 59*time.Minute || left > time.Hour {
			t.Errorf("mode %q: a lock that is kept for an hour ends in %v", request.Mode, left)
		}
		fence, err := others.Break(t.Context(), name, long.Fence())
		expect.MustEqual(t, "error of breaking it", err, nil)

		short := must(t, mine, name, Request{TTL: time.Hour})
		next := startWaiter(t, others, name, Request{}, 1)
		expect.Equal(t, "error of a short ReleaseAfter", short.ReleaseAfter(t.Context(), time.Microsecond), nil)
		after := next.granted(t)
		rising(t, long.Fence(), fence, short.Fence(), after.Fence())
		release(t, after)
	}
	broken := must(t, mine, "kept-not", Request{TTL: time.Hour})
	_, err := others.Break(t.Context(), "kept-not", broken.Fence())
	expect.MustEqual(t, "error of breaking a lock", err, nil)
	wantIs(t, broken.ReleaseAfter(t.Context(), time.Hour), ErrLost)
	tooLong := must(t, mine, "kept-long", Request{TTL: time.Hour})
	wantIs(t, tooLong.ReleaseAfter(t.Context(), MaxTTL+1), ErrInvalid)
}
