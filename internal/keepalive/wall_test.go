package keepalive_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// In a bubble the clocks run alike. A machine that slept is one whose wall clock is ahead all of a
// sudden.
const night = 8 * time.Hour

func TestSuspendEndsTheTrustAndARenewalTellsWhetherItIsThere(t *testing.T) {
	for name, row := range map[string]struct {
		reply  error
		strict bool
		cause  error
	}{
		"it is there":                     {nil, false, nil},
		"it is lost":                      {errGone, false, keepalive.ErrLost},
		"nobody answers":                  {errDown, false, keepalive.ErrDeadline},
		"strict, it is there":             {nil, true, keepalive.ErrDeadline},
		"strict, it is lost":              {errGone, true, keepalive.ErrDeadline},
		"strict, nobody answers, no wait": {errDown, true, keepalive.ErrDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &far{answer: func(context.Context, int) error { return row.reply }}
				k := keep(t, f, func(c *keepalive.Config) { c.Strict = row.strict })
				time.Sleep(time.Second / 2)
				f.jump(night)
				wantNoTrust(t, k)
				time.Sleep(time.Second)
				synctest.Wait()
				wantTrustedUnless(t, k, row.cause)
				f.wantAsked(t, map[bool]int{false: 1}[row.strict])
				time.Sleep(10 * ttl)
				wantTrustedUnless(t, k, row.cause)
			})
		})
	}
}

// wantTrustedUnless wants a lease to have ended for a cause, or, for nil, that it can be trusted.
func wantTrustedUnless(t *testing.T, k *keepalive.Keeper, cause error) {
	t.Helper()
	if cause != nil {
		wantEnded(t, k, cause)
		return
	}
	wantAlive(t, k)
	wantTrust(t, k)
}

func wantTrust(t *testing.T, k *keepalive.Keeper) {
	t.Helper()
	if left := k.Valid(); left <= 0 {
		t.Errorf("Valid: got %v, want more than 0", left)
	}
}

// A renewal that was asked for before the machine slept says nothing of the time after that.
func TestSuspendDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		f.answer = func(_ context.Context, n int) error {
			if n == 1 {
				f.jump(night)
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		k := keep(t, f, nil)
		for len(f.times()) == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
		wantNoTrust(t, k)
		time.Sleep(time.Second)
		f.wantAsked(t, 2)
		wantTrust(t, k)
	})
}

// A machine may sleep between the moment in which a grant is asked for and its reply.
func TestSuspendBeforeTheReplyToTheGrant(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &far{}
			config := f.config()
			config.Strict = strict
			sent, wall := time.Now(), f.wall()
			f.jump(night)
			k := keepalive.Start(t.Context(), sent, wall, config)
			wantNoTrust(t, k)
			time.Sleep(1100 * time.Millisecond)
			wantTrustedUnless(t, k, map[bool]error{true: keepalive.ErrDeadline}[strict])
			k.Stop()
		})
	}
}

func TestWallClockThatIsSetBackChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(_ context.Context, n int) error {
			if n <= 3 {
				return nil
			}
			return errDown
		}}
		k := keep(t, f, nil)
		for k.Context().Err() == nil {
			f.jump(-time.Hour)
			if left := k.Valid(); left > ttl-margin {
				t.Fatalf("Valid: got %v, want %v at most", left, ttl-margin)
			}
			time.Sleep(250 * time.Millisecond)
		}
		times := f.times()
		wantGaps(t, gaps(times[:4]), ttl/3)
		if lasted := time.Since(times[2]); lasted < ttl-margin || lasted > ttl-margin+250*time.Millisecond {
			t.Errorf("the lease ended %v after the last renewal was sent, want %v", lasted, ttl-margin)
		}
	})
}

// A step of the wall clock that is shorter than the lease costs as much of it, until the next
// renewal.
func TestSmallStepsForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		k := keep(t, f, func(c *keepalive.Config) { c.Strict = true })
		f.jump(20 * time.Second)
		expect.Equal(t, "Valid after a step of 20s", k.Valid(), ttl-margin-20*time.Second)
		f.jump(-20 * time.Second)
		expect.Equal(t, "Valid after a step back", k.Valid(), ttl-margin)
		f.jump(10 * time.Second)
		for len(f.times()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if left := k.Valid(); left < ttl-margin-100*time.Millisecond {
			t.Errorf("Valid after a renewal: got %v, want %v", left, ttl-margin)
		}
		time.Sleep(10 * ttl)
		wantAlive(t, k)
	})
}

func TestWallClockOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(_ context.Context, n int) error {
			if n == 1 {
				return errDown
			}
			return nil
		}}
		k := keep(t, f, func(c *keepalive.Config) { c.Wall, c.Failed = nil, nil })
		expect.Equal(t, "Valid", k.Valid(), ttl-margin)
		time.Sleep(10 * ttl)
		wantAlive(t, k)
	})
}

// Work whose claim another attempt may take ends within a second after the machine has slept for
// longer than the lease. Work that has its claim alone goes on.
func TestSuspendEndsAClaimThatAnotherMayTake(t *testing.T) {
	for _, late := range []error{nil, errGone} {
		synctest.Test(t, func(t *testing.T) {
			f := &far{}
			ctx, end := context.WithCancelCause(context.Background())
			beat := keepalive.Beat(time.Now(), keepalive.Claim{
				Lease: ttl, Extend: func() error { return f.renew(ctx) }, Lost: func(error) bool { return false }, Failed: f.fail, End: end, Late: late, Wall: f.wall,
			})
			defer beat.Stop()
			time.Sleep(10*ttl + ttl/6) // between two heartbeats
			expect.Error(t, "cause of the work's end before the machine sleeps", context.Cause(ctx), nil)
			f.jump(night)
			time.Sleep(time.Second)
			synctest.Wait()
			expect.Error(t, "cause of the work's end after that", context.Cause(ctx), late)
		})
	}
}
