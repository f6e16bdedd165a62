package keepalive_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
)

// In a bubble the clocks run alike. A machine that slept is one whose wall clock is ahead all of a sudden.
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
				if left := k.Valid(); left > 0 {
					t.Errorf("after a night it can be trusted for %v", left)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if cause := context.Cause(k.Context()); !errors.Is(cause, row.cause) || (k.Valid() > 0) != (row.cause == nil) {
					t.Errorf("a second later: %v, can be trusted for %v", cause, k.Valid())
				}
				asked := len(f.times())
				if row.strict && asked > 0 || !row.strict && asked != 1 {
					t.Errorf("%d renewals", asked)
				}
				time.Sleep(10 * ttl)
				if cause := context.Cause(k.Context()); !errors.Is(cause, row.cause) || (k.Valid() > 0) != (row.cause == nil) {
					t.Errorf("later: %v, can be trusted for %v", cause, k.Valid())
				}
			})
		})
	}
}

// A renewal that was asked for before the machine slept says nothing of the time behind that.
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
		if left := k.Valid(); left > 0 {
			t.Errorf("it can be trusted for %v", left)
		}
		time.Sleep(time.Second)
		if left := k.Valid(); left <= 0 || len(f.times()) != 2 {
			t.Errorf("after %d renewals it can be trusted for %v", len(f.times()), left)
		}
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
			if left := k.Valid(); left > 0 {
				t.Errorf("it can be trusted for %v", left)
			}
			time.Sleep(1100 * time.Millisecond)
			if (k.Valid() > 0) == strict || (k.Context().Err() != nil) != strict {
				t.Errorf("strict %v: can be trusted for %v, %v", strict, k.Valid(), context.Cause(k.Context()))
			}
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
				t.Fatalf("it can be trusted for %v", left)
			}
			time.Sleep(250 * time.Millisecond)
		}
		times := f.times()
		wantGaps(t, gaps(times[:4]), ttl/3)
		if lasted := time.Since(times[2]); lasted < ttl-margin || lasted > ttl-margin+250*time.Millisecond {
			t.Errorf("it ended %v after the last renewal was sent", lasted)
		}
	})
}

// A step of the wall clock that is shorter than the lease costs as much of it, until the next renewal.
func TestSmallStepsForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		k := keep(t, f, func(c *keepalive.Config) { c.Strict = true })
		f.jump(20 * time.Second)
		if left := k.Valid(); left != ttl-margin-20*time.Second {
			t.Errorf("it can be trusted for %v", left)
		}
		f.jump(-20 * time.Second)
		if left := k.Valid(); left != ttl-margin {
			t.Errorf("set back, it can be trusted for %v", left)
		}
		f.jump(10 * time.Second)
		for len(f.times()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if left := k.Valid(); left < ttl-margin-100*time.Millisecond {
			t.Errorf("after a renewal it can be trusted for %v", left)
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
		if left := k.Valid(); left != ttl-margin {
			t.Errorf("it can be trusted for %v", left)
		}
		time.Sleep(10 * ttl)
		wantAlive(t, k)
	})
}
