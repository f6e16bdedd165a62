package holder_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/holder"
	"github.com/coatcheck/coatcheck/internal/keepalive"
)

func TestHoldsFromTheReturnOfHoldOn(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			h := hold(t, g, d, holder.Options{})
			wantHeld(t, h, 0) // no other goroutine had to run for it
			wantDone(t, h, false)
			d.want(t, holder.Granted)
		})
	}
}

func TestHoldsForLongAndGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		h := hold(t, g, d, holder.Options{})
		ctx, first := h.Context(), must(h.Lease())
		for range 1000 {
			time.Sleep(time.Second)
			wantHeld(t, h, 0)
		}
		last := must(h.Lease())
		if !last.NotAfter.After(first.NotAfter.Add(900*time.Second)) || !last.NotBefore.Equal(first.NotBefore) {
			t.Errorf("the window went from %v to %v", first, last)
		}
		used := g.now()
		if err := h.Release(t.Context(), used); err != nil {
			t.Error(err)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, keepalive.ErrReleased) {
			t.Errorf("the lease's context ended with %v", cause)
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, keepalive.ErrReleased) {
			t.Errorf("its context has the cause %v", cause)
		}
		wantNone(t, h, keepalive.ErrReleased)
		wantDone(t, h, true)
		d.want(t, holder.Granted, holder.Renewed, holder.Released)
		for _, e := range d.all() {
			if e.Pool != "p" || e.WorkerID != 0 || e.Err != nil {
				t.Errorf("%+v", e)
			}
		}
		asked := g.renewed()
		for range 3 {
			if err := h.Release(t.Context(), used); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Hour)
		given := g.given()
		if len(given) != 1 || !given[0].used.Equal(used) || given[0].lease.Token != "token of 0" || !given[0].lease.NotAfter.Equal(last.NotAfter) {
			t.Errorf("given back: %+v", given)
		}
		if g.renewed() != asked {
			t.Error("it was renewed after its release")
		}
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestLossEndsTheHolding(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.renew = func(n int) error {
			if n == 3 {
				return errGone
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{})
		ctx := h.Context()
		<-h.Done()
		wantNone(t, h, keepalive.ErrLost)
		wantNone(t, h, errGone)
		if cause := context.Cause(ctx); !errors.Is(cause, errGone) || !errors.Is(cause, keepalive.ErrLost) {
			t.Errorf("the lease's context ended with %v", cause)
		}
		d.want(t, holder.Granted, holder.Renewed, holder.Lost)
		if events := d.all(); !errors.Is(events[len(events)-1].Err, errGone) || events[len(events)-1].Pool != "p" {
			t.Errorf("%+v", events[len(events)-1])
		}
		if err := h.Release(t.Context(), time.Time{}); err != nil || len(g.given()) != 0 {
			t.Errorf("%v: what is gone was given back: %+v", err, g.given())
		}
		wantNone(t, h, errGone)
		time.Sleep(time.Hour)
		if len(g.asked()) != 1 {
			t.Error("it asked for another")
		}
	})
}

// While renewals fail the lease is used up to its deadline, and not beyond.
func TestDeadlineEndsTheHolding(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.renew = func(n int) error {
			if n > 2 {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{})
		for h.Err() == nil {
			wantHeld(t, h, 0)
			time.Sleep(10 * time.Millisecond)
		}
		if lasted := time.Since(g.renewals[1]); lasted < ttl-margin || lasted > ttl-margin+10*time.Millisecond {
			t.Errorf("it could be used for %v from where the last renewal was sent", lasted)
		}
		<-h.Done()
		wantNone(t, h, keepalive.ErrDeadline)
		d.want(t, holder.Granted, holder.Renewed, holder.RenewalFailed, holder.Lost)
		// It may still be there, so it is given back.
		if err := h.Release(t.Context(), g.now()); err != nil || len(g.given()) != 1 {
			t.Errorf("%v %+v", err, g.given())
		}
	})
}

func TestReacquires(t *testing.T) {
	for name, err := range map[string]*refusal{"after a loss": errGone, "after the deadline": errDown} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *granter, d *diary) {
				g.renew = func(n int) error {
					if n > 2 && g.slots() == 1 {
						return err
					}
					return nil
				}
				h := hold(t, g, d, holder.Options{Reacquire: true})
				first := h.Context()
				<-first.Done()
				time.Sleep(time.Millisecond)
				wantHeld(t, h, 1)
				if h.Context() == first {
					t.Error("the new lease has the old one's context")
				}
				wantDone(t, h, false)
				nonces := g.asked()
				if len(nonces) != 2 || nonces[0] == nonces[1] {
					t.Errorf("nonces %v", nonces)
				}
				time.Sleep(10 * ttl)
				wantHeld(t, h, 1)
				if err := h.Release(t.Context(), time.Time{}); err != nil {
					t.Error(err)
				}
				if given := g.given(); len(given) != 1 || given[0].lease.WorkerID != 1 {
					t.Errorf("given back: %+v", given)
				}
				kinds := slices.DeleteFunc(d.kinds(), func(k holder.Kind) bool { return k == holder.RenewalFailed })
				if want := []holder.Kind{holder.Granted, holder.Renewed, holder.Lost, holder.Granted, holder.Renewed, holder.Released}; !slices.Equal(kinds, want) {
					t.Errorf("events %v, want %v", kinds, want)
				}
			})
		})
	}
}

// Between two leases nothing may be stamped, and the reason of the last loss is told.
func TestNothingIsHeldBetweenLeases(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.renew = func(int) error { return errGone }
		g.acquire = func(n int) error {
			if n > 1 {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Reacquire: true})
		<-h.Context().Done()
		for range 60 {
			time.Sleep(time.Second)
			wantNone(t, h, errGone)
			if cause := context.Cause(h.Context()); !errors.Is(cause, errGone) {
				t.Errorf("%v", cause)
			}
		}
		wantDone(t, h, false)
		if err := h.Release(t.Context(), time.Time{}); err != nil || len(g.given()) != 0 {
			t.Errorf("%v %+v", err, g.given())
		}
		wantNone(t, h, keepalive.ErrReleased)
	})
}

func TestReleaseOfALeaseThatMayStillBeThereWhileAnotherIsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.renew = func(int) error { return errDown }
		g.acquire = func(n int) error {
			if n > 1 {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Reacquire: true})
		time.Sleep(ttl)
		wantNone(t, h, keepalive.ErrDeadline)
		if err := h.Release(t.Context(), g.now()); err != nil || len(g.given()) != 1 || g.given()[0].lease.WorkerID != 0 {
			t.Errorf("%v %+v", err, g.given())
		}
	})
}

func TestReacquiringEndsWithAFinalRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.renew = func(int) error { return errGone }
		g.acquire = func(n int) error {
			return [...]error{nil, errDown, errFinal}[n-1]
		}
		h := hold(t, g, d, holder.Options{Reacquire: true})
		<-h.Done()
		wantNone(t, h, errFinal)
		if cause := context.Cause(h.Context()); !errors.Is(cause, errFinal) {
			t.Errorf("%v", cause)
		}
		time.Sleep(time.Hour)
		if len(g.asked()) != 3 {
			t.Errorf("it asked %d times", len(g.asked()))
		}
	})
}

func TestStartReturnsAtOnceAndGoesOnAsking(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(n int) error {
			if n < 20 {
				return errDown
			}
			return nil
		}
		began := time.Now()
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note})
		if time.Since(began) != 0 {
			t.Error("it waited")
		}
		wantNone(t, h, holder.ErrNone)
		if cause := context.Cause(h.Context()); !errors.Is(cause, holder.ErrNone) {
			t.Errorf("%v", cause)
		}
		for h.Err() != nil {
			time.Sleep(time.Second)
		}
		wantHeld(t, h, 0)
		d.want(t, holder.Waiting, holder.Granted)
		if err := h.Release(t.Context(), time.Time{}); err != nil {
			t.Error(err)
		}
	})
}

func TestStartEndsWithAFinalRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(int) error { return errFinal }
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note, Reacquire: true})
		<-h.Done()
		wantNone(t, h, errFinal)
		if err := h.Release(t.Context(), time.Time{}); err != nil || len(g.given()) != 0 {
			t.Errorf("%v %+v", err, g.given())
		}
	})
}

func TestEndOfTheContextEndsTheHoldingAndReleaseStillGivesBack(t *testing.T) {
	why := errors.New("shut down")
	for _, reacquire := range []bool{false, true} {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			ctx, cancel := context.WithCancelCause(t.Context())
			h, err := holder.Hold(ctx, g, holder.Options{Reacquire: reacquire, Observe: d.note})
			if err != nil {
				t.Fatal(err)
			}
			cancel(why)
			wantNone(t, h, why) // at once
			if cause := context.Cause(h.Context()); !errors.Is(cause, why) {
				t.Errorf("%v", cause)
			}
			<-h.Done()
			if len(g.given()) != 0 {
				t.Error("it was given back by itself: the generator may not be stopped yet")
			}
			used := g.now()
			if err := h.Release(t.Context(), used); err != nil || len(g.given()) != 1 || !g.given()[0].used.Equal(used) {
				t.Errorf("%v %+v", err, g.given())
			}
			wantNone(t, h, why)
			d.want(t, holder.Granted, holder.Released)
		})
	}
}

func TestReleaseThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.release = func(ctx context.Context) error { <-ctx.Done(); return errDown }
		h := hold(t, g, d, holder.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx, time.Time{}); !errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}
		wantNone(t, h, keepalive.ErrReleased)
		if events := d.all(); events[len(events)-1].Kind != holder.Released || !errors.Is(events[len(events)-1].Err, errDown) {
			t.Errorf("%+v", events)
		}
		if err := h.Release(t.Context(), time.Time{}); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// A renewal that is under way ends before the lease is given back: behind it, it could be taken for one of the next holder.
func TestReleaseDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.out = 2 * time.Second
		h := hold(t, g, d, holder.Options{})
		for g.renewed() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		if err := h.Release(t.Context(), time.Time{}); err != nil {
			t.Error(err)
		}
		if time.Since(began) != 0 {
			t.Errorf("it took %v, though the renewal's context had ended", time.Since(began))
		}
		synctest.Wait()
		d.want(t, holder.Granted, holder.Released)
	})
}

func TestManyReleaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		h := hold(t, g, d, holder.Options{Reacquire: true})
		time.Sleep(ttl)
		done := make(chan error)
		for range 8 {
			go func() { done <- h.Release(t.Context(), time.Time{}) }()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if len(g.given()) != 1 {
			t.Errorf("given back: %+v", g.given())
		}
	})
}
