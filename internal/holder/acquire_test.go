package holder_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/holder"
	"github.com/coatcheck/coatcheck/internal/keepalive"
)

func TestWithoutPatienceItAsksOnce(t *testing.T) {
	for _, err := range []error{errDown, errFull(time.Millisecond), errFull(time.Hour), errFinal} {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			g.acquire = func(int) error { return err }
			began := time.Now()
			h, got := holder.Hold(t.Context(), g, holder.Options{Reacquire: true, Observe: d.note})
			if h != nil || !errors.Is(got, err) || time.Since(began) != 0 || len(g.asked()) != 1 {
				t.Errorf("%v after %v and %d attempts", got, time.Since(began), len(g.asked()))
			}
			d.want(t)
		})
	}
}

func TestPatienceEnds(t *testing.T) {
	for _, err := range []error{errDown, errFull(time.Millisecond), errFull(time.Hour), errFull(20 * time.Second)} {
		for _, patience := range []time.Duration{time.Nanosecond, time.Second, 20 * time.Second, time.Hour} {
			bubble(t, func(t *testing.T, g *granter, d *diary) {
				g.acquire = func(int) error { return err }
				began := time.Now()
				_, got := holder.Hold(t.Context(), g, holder.Options{Patience: patience, Observe: d.note})
				if !errors.Is(got, err) {
					t.Errorf("%v", got)
				}
				if took := time.Since(began); took > patience || took < patience-8*time.Second {
					t.Errorf("%v of %v", took, patience)
				}
				if n := len(g.asked()); n != len(d.all())+1 || patience > time.Second && n < 3 {
					t.Errorf("%d attempts, %d events", n, len(d.all()))
				}
			})
		}
	}
}

func TestFinalRefusalNeedsNoPatience(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(n int) error { return [...]error{errDown, errFinal}[n-1] }
		_, err := holder.Hold(t.Context(), g, holder.Options{Patience: time.Hour, Observe: d.note})
		if !errors.Is(err, errFinal) || len(g.asked()) != 2 {
			t.Errorf("%v after %d attempts", err, len(g.asked()))
		}
		d.want(t, holder.Waiting)
	})
}

// Where it is known from when on a grant can be had, that is when it is asked for; a long wait can be cut short by a release.
func TestWaitsAsLongAsIsNamed(t *testing.T) {
	for named, want := range map[time.Duration][2]time.Duration{
		time.Nanosecond:        {50 * time.Millisecond, 75 * time.Millisecond},
		300 * time.Millisecond: {300 * time.Millisecond, 450 * time.Millisecond},
		4 * time.Second:        {4 * time.Second, 6 * time.Second},
		time.Hour:              {5 * time.Second, 7500 * time.Millisecond},
	} {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			var asked []time.Time
			g.acquire = func(n int) error {
				asked = append(asked, time.Now())
				if n < 30 {
					return errFull(named)
				}
				return nil
			}
			h := hold(t, g, d, holder.Options{Patience: 2 * time.Hour})
			wantHeld(t, h, 0)
			d.want(t, holder.Waiting, holder.Granted)
			for i, e := range d.all()[:29] {
				gap := asked[i+1].Sub(asked[i])
				if gap != e.Wait || gap < want[0] || gap > want[1] || e.Err.Error() != "full" {
					t.Errorf("named %v: waited %v, told %+v", named, gap, e)
				}
			}
		})
	}
}

func TestWaitsLongerAndLongerWhereNothingIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(n int) error {
			if n < 20 {
				return errDown
			}
			return nil
		}
		hold(t, g, d, holder.Options{Patience: time.Hour})
		want := 50 * time.Millisecond
		for _, e := range d.all()[:19] {
			if e.Wait < want || e.Wait > want*3/2 {
				t.Errorf("%v, want %v", e.Wait, want)
			}
			want = min(2*want, 5*time.Second)
		}
	})
}

// An attempt whose outcome is not known may have taken a slot: it is asked for again under the same name.
func TestLostRepliesCostNoSlots(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquired = func(n int) error {
			if n < 8 {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Patience: time.Minute})
		wantHeld(t, h, 0)
		nonces := g.asked()
		for _, nonce := range nonces {
			if nonce != nonces[0] || len(nonce) != 22 {
				t.Errorf("nonces %v", nonces)
			}
		}
		if g.slots() != 1 || len(nonces) != 8 {
			t.Errorf("%d slots, %d attempts", g.slots(), len(nonces))
		}
	})
}

// A grant that is heard of only when it is repeated counts from when it was given, not from when it was repeated.
func TestRepeatedGrantIsNotTrustedBeyondItsWindow(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.ahead = -time.Hour
		g.acquired = func(n int) error {
			if n < 9 {
				return errDown
			}
			return nil
		}
		g.renew = func(int) error { return errDown }
		h := hold(t, g, d, holder.Options{Patience: time.Minute})
		lease := must(h.Current())
		if age := lease.Now.Sub(lease.NotBefore); age < 10*time.Second || age > 25*time.Second {
			t.Fatalf("the grant is %v old", age)
		}
		<-h.Context().Done()
		if left := lease.NotAfter.Sub(g.now()); left < margin || left > margin+time.Millisecond {
			t.Errorf("the lease ended %v before its window", left)
		}
	})
}

func TestRepeatedGrantIsRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquired = func(n int) error {
			if n < 9 {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Patience: time.Minute})
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			wantHeld(t, h, 0)
		}
	})
}

func TestGrantWhoseWindowHasEndedIsNotUsed(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		began := time.Now()
		g.acquired = func(int) error {
			if time.Since(began) < 2*ttl {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Patience: time.Hour})
		wantHeld(t, h, 1)
		if lease := must(h.Lease()); !lease.NotAfter.After(g.now()) {
			t.Errorf("%+v at %v", lease, g.now())
		}
		events := d.all()
		if late := events[len(events)-2]; !errors.Is(late.Err, holder.ErrLate) {
			t.Errorf("%+v", events)
		}
	})
}

func TestGrantWhoseReplyTookTooLongIsNotUsed(t *testing.T) {
	for _, row := range []struct {
		out, back time.Duration
		used      bool
	}{
		{0, ttl, false}, {ttl, 0, false}, {ttl / 2, ttl / 2, false}, {0, ttl - margin, false}, {ttl - margin, 0, false},
		{0, ttl - margin - time.Nanosecond, true}, {ttl / 2, ttl/2 - margin - time.Nanosecond, true},
	} {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			g.out, g.back = row.out, row.back
			h, err := holder.Hold(t.Context(), g, holder.Options{Observe: d.note})
			if row.used {
				if err != nil {
					t.Fatalf("%+v: %v", row, err)
				}
				_ = h.Release(t.Context(), time.Time{})
				return
			}
			if !errors.Is(err, holder.ErrLate) || len(g.asked()) != 1 {
				t.Errorf("%+v: %v after %d attempts", row, err, len(g.asked()))
			}
			d.want(t)
		})
	}
}

// A network that is slower than the TTL must not eat up the pool.
func TestLateGrantsAreNotAskedForWithoutPause(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.back = ttl
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note})
		time.Sleep(20 * ttl)
		wantNone(t, h, holder.ErrNone)
		if n := g.slots(); n > 20 {
			t.Errorf("it took %d slots", n)
		}
		g.set(func() { g.back = 0 })
		time.Sleep(2 * ttl)
		if h.Err() != nil {
			t.Error(h.Err())
		}
		nonces := map[string]bool{}
		for _, nonce := range g.asked() {
			nonces[nonce] = true
		}
		if len(nonces) != len(g.asked()) {
			t.Error("a grant that is of no use was asked for again")
		}
		_ = h.Release(t.Context(), time.Time{})
	})
}

func TestEndOfTheContextWhileAsking(t *testing.T) {
	why := errors.New("enough")
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.out = time.Hour
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		began := time.Now()
		_, err := holder.Hold(ctx, g, holder.Options{Patience: 2 * time.Hour, Observe: d.note})
		if !errors.Is(err, why) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(int) error { return errFull(time.Hour) }
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note})
		time.Sleep(time.Minute)
		began := time.Now()
		if err := h.Release(t.Context(), time.Time{}); err != nil || time.Since(began) != 0 || len(g.given()) != 0 {
			t.Errorf("%v after %v, %+v", err, time.Since(began), g.given())
		}
		wantNone(t, h, keepalive.ErrReleased)
		wantDone(t, h, true)
		d.want(t, holder.Waiting)
	})
}

// deafToItsEnd does not hear that its caller has gone, as a reply that is there already.
type deafToItsEnd struct{ *granter }

func (g deafToItsEnd) Acquire(ctx context.Context, nonce string) (holder.Lease, error) {
	return g.granter.Acquire(context.WithoutCancel(ctx), nonce)
}

func TestGrantThatComesBehindTheEndIsGivenBack(t *testing.T) {
	why := errors.New("enough")
	for name, start := range map[string]func(ctx context.Context, g holder.Leaser, options holder.Options){
		"Hold": func(ctx context.Context, g holder.Leaser, options holder.Options) {
			if _, err := holder.Hold(ctx, g, options); !errors.Is(err, why) {
				t.Errorf("%v", err)
			}
		},
		"Start": func(ctx context.Context, g holder.Leaser, options holder.Options) {
			<-holder.Start(ctx, g, options).Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *granter, d *diary) {
				g.back = 2 * time.Second
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				start(ctx, deafToItsEnd{g}, holder.Options{Observe: d.note, Patience: time.Hour})
				given := g.given()
				if len(given) != 1 || given[0].lease.WorkerID != 0 || !given[0].used.Equal(given[0].lease.NotBefore) || g.slots() != 1 {
					t.Errorf("%+v", given)
				}
				d.want(t)
			})
		})
	}
}

// A machine may sleep while it waits for its grant.
func TestSuspendBeforeTheGrantsReply(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		ahead := time.Duration(0)
		g.acquired = func(n int) error {
			if n == 1 {
				ahead = time.Hour
				g.set(func() { g.ahead = time.Hour })
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Patience: time.Minute, Wall: func() time.Time { return time.Now().Round(0).Add(ahead) }})
		wantHeld(t, h, 1)
		if events := d.all(); events[0].Kind != holder.Waiting || !errors.Is(events[0].Err, holder.ErrLate) {
			t.Errorf("%+v", events)
		}
	})
}
