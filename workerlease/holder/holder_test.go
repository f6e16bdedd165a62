package holder_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

func TestHoldsFromTheReturnOfHoldOn(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			h := hold(t, g, d, holder.Options{})
			wantHeld(t, h, 0) // no other goroutine had to run for it
			wantDone(t, h, false)
			d.want(t, holder.KindGranted)
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
			t.Errorf("the window went from %v to %v, want its end to move by more than 900s and its beginning not at all", first, last)
		}
		used := g.now()
		release(t, h, used)
		wantCause(ctx, t, keepalive.ErrReleased)
		wantCause(h.Context(), t, keepalive.ErrReleased)
		wantNone(t, h, keepalive.ErrReleased)
		wantDone(t, h, true)
		d.want(t, holder.KindGranted, holder.KindRenewed, holder.KindReleased)
		for _, e := range d.all() {
			expect.Equal(t, "pool of an event", e.Pool, "p")
			expect.Equal(t, "worker id of an event", e.WorkerID, 0)
			expect.Error(t, "an event", e.Err, nil)
		}
		asked := g.renewed()
		for range 3 {
			release(t, h, used)
		}
		time.Sleep(time.Hour)
		g.wantGiven(t, 0)
		given := g.given()[0]
		expect.Equal(t, "until when it was used", given.used, used)
		expect.Equal(t, "token that was given back", given.lease.Token, "token of 0")
		expect.Equal(t, "end of the window that was given back", given.lease.NotAfter, last.NotAfter)
		expect.Equal(t, "renewals, those after the release included", g.renewed(), asked)
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
		h := hold(t, g, d, holder.Options{Once: true})
		ctx := h.Context()
		<-h.Done()
		wantNone(t, h, keepalive.ErrLost)
		wantNone(t, h, errGone)
		wantCause(ctx, t, errGone)
		wantCause(ctx, t, keepalive.ErrLost)
		d.want(t, holder.KindGranted, holder.KindRenewed, holder.KindLost)
		event := d.last()
		expect.Error(t, "the last event", event.Err, errGone)
		expect.Equal(t, "pool of the last event", event.Pool, "p")
		release(t, h, time.Time{})
		g.wantGiven(t) // what is gone is not given back
		wantNone(t, h, errGone)
		time.Sleep(time.Hour)
		g.wantAsked(t, 1)
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
		h := hold(t, g, d, holder.Options{Once: true})
		for h.Err() == nil {
			wantHeld(t, h, 0)
			time.Sleep(10 * time.Millisecond)
		}
		if lasted := time.Since(g.renewals[1]); lasted < ttl-margin || lasted > ttl-margin+10*time.Millisecond {
			t.Errorf("it could be used for %v from where the last renewal was sent, want %v", lasted, ttl-margin)
		}
		<-h.Done()
		wantNone(t, h, keepalive.ErrDeadline)
		d.want(t, holder.KindGranted, holder.KindRenewed, holder.KindRenewalFailed, holder.KindLost)
		// It may still be there, so it is given back.
		release(t, h, g.now())
		g.wantGiven(t, 0)
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
				h := hold(t, g, d, holder.Options{})
				first := h.Context()
				<-first.Done()
				time.Sleep(time.Millisecond)
				wantHeld(t, h, 1)
				if h.Context() == first {
					t.Error("Context of the new lease: got that of the old one")
				}
				wantDone(t, h, false)
				nonces := g.asked()
				if len(nonces) != 2 || nonces[0] == nonces[1] {
					t.Errorf("nonces: got %v, want two different ones", nonces)
				}
				time.Sleep(10 * ttl)
				wantHeld(t, h, 1)
				release(t, h, time.Time{})
				g.wantGiven(t, 1)
				kinds := slices.DeleteFunc(d.kinds(), func(k holder.Kind) bool { return k == holder.KindRenewalFailed })
				expect.Equal(t, "kinds of events", kinds, []holder.Kind{holder.KindGranted, holder.KindRenewed, holder.KindLost, holder.KindGranted, holder.KindRenewed, holder.KindReleased})
			})
		})
	}
}

func TestOnceIsDoneWhenItsWorkerIDIsLost(t *testing.T) {
	for name, err := range map[string]*refusal{"after a loss": errGone, "after the deadline": errDown} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *granter, d *diary) {
				g.renew = func(int) error { return err }
				h := hold(t, g, d, holder.Options{Once: true})
				<-h.Done()
				time.Sleep(time.Hour)
				g.wantAsked(t, 1)
				expect.Error(t, "Err of a holder that is done", h.Err(), holder.ErrNone)
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
		h := hold(t, g, d, holder.Options{})
		<-h.Context().Done()
		for range 60 {
			time.Sleep(time.Second)
			wantNone(t, h, errGone)
			wantCause(h.Context(), t, errGone)
		}
		wantDone(t, h, false)
		release(t, h, time.Time{})
		g.wantGiven(t)
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
		h := hold(t, g, d, holder.Options{})
		time.Sleep(ttl)
		wantNone(t, h, keepalive.ErrDeadline)
		release(t, h, g.now())
		g.wantGiven(t, 0)
	})
}

func TestReacquiringEndsWithAFinalRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.renew = func(int) error { return errGone }
		g.acquire = func(n int) error {
			return [...]error{nil, errDown, errFinal}[n-1]
		}
		h := hold(t, g, d, holder.Options{})
		<-h.Done()
		wantNone(t, h, errFinal)
		wantCause(h.Context(), t, errFinal)
		time.Sleep(time.Hour)
		g.wantAsked(t, 3)
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
		expect.Equal(t, "time that Start took", time.Since(began), 0)
		wantNone(t, h, holder.ErrNone)
		wantCause(h.Context(), t, holder.ErrNone)
		for h.Err() != nil {
			time.Sleep(time.Second)
		}
		wantHeld(t, h, 0)
		d.want(t, holder.KindWaiting, holder.KindGranted)
		release(t, h, time.Time{})
	})
}

func TestStartEndsWithAFinalRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(int) error { return errFinal }
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note})
		<-h.Done()
		wantNone(t, h, errFinal)
		release(t, h, time.Time{})
		g.wantGiven(t)
	})
}

func TestEndOfTheContextEndsTheHoldingAndReleaseStillGivesBack(t *testing.T) {
	why := errors.New("shut down")
	for _, once := range []bool{false, true} {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			ctx, cancel := context.WithCancelCause(t.Context())
			h, err := holder.Hold(ctx, g, holder.Options{Once: once, Observe: d.note})
			expect.NoError(t, "Hold", err)
			cancel(why)
			wantNone(t, h, why) // at once
			wantCause(h.Context(), t, why)
			<-h.Done()
			g.wantGiven(t) // not by itself: the generator may not be stopped yet
			used := g.now()
			g.release = func(ctx context.Context) error { time.Sleep(time.Second); return ctx.Err() }
			expect.NoError(t, "Release with the context that has ended", h.Release(ctx, used))
			g.wantGiven(t, 0)
			expect.Equal(t, "until when it was used", g.given()[0].used, used)
			wantNone(t, h, why)
			d.want(t, holder.KindGranted, holder.KindReleased)
		})
	}
}

func TestReleaseThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.release = func(ctx context.Context) error { <-ctx.Done(); return errDown }
		h := hold(t, g, d, holder.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.Error(t, "Release that fails", h.Release(ctx, time.Time{}), errDown)
		wantNone(t, h, keepalive.ErrReleased)
		event := d.last()
		expect.Equal(t, "kind of the last event", event.Kind, holder.KindReleased)
		expect.Error(t, "the last event", event.Err, errDown)
		release(t, h, time.Time{})
	})
}

// A renewal that is under way ends before the lease is given back: after it, it could be taken for
// one of the next holder.
func TestReleaseDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.out = 2 * time.Second
		h := hold(t, g, d, holder.Options{})
		for g.renewed() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		release(t, h, time.Time{})
		expect.Equal(t, "time that Release took while a renewal was under way", time.Since(began), 0)
		synctest.Wait()
		d.want(t, holder.KindGranted, holder.KindReleased)
	})
}

func TestManyReleaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		h := hold(t, g, d, holder.Options{})
		time.Sleep(ttl)
		done := make(chan error)
		for range 8 {
			go func() { done <- h.Release(t.Context(), time.Time{}) }()
		}
		for range 8 {
			expect.Error(t, "one of many Release", <-done, nil)
		}
		g.wantGiven(t, 0)
	})
}
