package holder_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

func TestNegativeWaitAsksOnce(t *testing.T) {
	for _, err := range []error{errDown, errFull(time.Millisecond), errFull(time.Hour), errFinal} {
		bubble(t, func(t *testing.T, g *granter, d *diary) {
			g.acquire = func(int) error { return err }
			began := time.Now()
			h, got := holder.Hold(t.Context(), g, holder.Options{Wait: -1, Observe: d.note})
			expect.Equal(t, "Hold", h, nil)
			expect.Error(t, "Hold", got, err)
			expect.Equal(t, "time that Hold took", time.Since(began), 0)
			g.wantAsked(t, 1)
			d.want(t)
		})
	}
}

// As with a lock: the zero value waits.
func TestWithoutAWaitItAsksUntilItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		began := time.Now()
		g.acquire = func(int) error {
			if time.Since(began) < 48*time.Hour {
				return errFull(time.Hour)
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{})
		wantHeld(t, h, 0)
	})
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(int) error { return errFull(time.Hour) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := holder.Hold(ctx, g, holder.Options{})
		expect.Equal(t, "time that Hold took", time.Since(began), time.Hour)
		expect.Error(t, "Hold whose context ends", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), errFull(0).Error()) {
			t.Errorf("Hold whose context ends: got error %q, want it to say why nothing was granted, %q", err, errFull(0))
		}
	})
}

func TestWaitEnds(t *testing.T) {
	for _, err := range []error{errDown, errFull(time.Millisecond), errFull(time.Hour), errFull(20 * time.Second)} {
		for _, wait := range []time.Duration{time.Nanosecond, time.Second, 20 * time.Second, time.Hour} {
			bubble(t, func(t *testing.T, g *granter, d *diary) {
				g.acquire = func(int) error { return err }
				began := time.Now()
				_, got := holder.Hold(t.Context(), g, holder.Options{Wait: wait, Observe: d.note})
				expect.Error(t, fmt.Sprint("Hold with a wait of ", wait), got, err)
				if took := time.Since(began); took > wait || took < wait-8*time.Second {
					t.Errorf("Hold with a wait of %v took %v, want that or up to 8s less", wait, took)
				}
				g.wantAsked(t, len(d.all())+1)
				if n := len(g.asked()); wait > time.Second && n < 3 {
					t.Errorf("attempts with a wait of %v: got %d, want 3 or more", wait, n)
				}
			})
		}
	}
}

func TestFinalRefusalEndsAWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(n int) error { return [...]error{errDown, errFinal}[n-1] }
		_, err := holder.Hold(t.Context(), g, holder.Options{Wait: time.Hour, Observe: d.note})
		expect.Error(t, "Hold", err, errFinal)
		g.wantAsked(t, 2)
		d.want(t, holder.KindWaiting)
	})
}

// Where it is known from when on a grant can be had, that is when it is asked for; a long wait can
// be cut short by a release.
func TestWaitsAsLongAsIsNamed(t *testing.T) {
	for named, want := range map[time.Duration][2]time.Duration{
		time.Nanosecond:        {50 * time.Millisecond, 75 * time.Millisecond},
		300 * time.Millisecond: {300 * time.Millisecond, 450 * time.Millisecond},
		4 * time.Second:        {4 * time.Second, 4500 * time.Millisecond},
		time.Hour:              {5 * time.Second, 5500 * time.Millisecond},
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
			h := hold(t, g, d, holder.Options{Wait: 2 * time.Hour})
			wantHeld(t, h, 0)
			d.want(t, holder.KindWaiting, holder.KindGranted)
			for i, e := range d.all()[:29] {
				gap := asked[i+1].Sub(asked[i])
				if gap != e.Wait || gap < want[0] || gap > want[1] || e.Err.Error() != "full" {
					t.Errorf("a wait of %v is named: waited %v, want %v to %v; event %+v, want that wait and %q", named, gap, want[0], want[1], e, "full")
				}
			}
		})
	}
}

// Somebody who knows that a grant can be had now ends the wait for it.
func TestAskNowEndsAWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(n int) error {
			if n < 3 {
				return errFull(time.Hour)
			}
			return nil
		}
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note})
		defer func() { _ = h.Release(context.Background(), time.Time{}) }()
		for asked := range 2 {
			synctest.Wait()
			g.wantAsked(t, asked+1)
			h.AskNow()
		}
		synctest.Wait()
		g.wantAsked(t, 3)
		wantHeld(t, h, 0)
	})
}

func TestWaitsLongerAndLongerWhereNothingIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(n int) error {
			if n < 20 {
				return errDown
			}
			return nil
		}
		hold(t, g, d, holder.Options{Wait: time.Hour})
		want := 50 * time.Millisecond
		for _, e := range d.all()[:19] {
			if e.Wait < want || e.Wait > want*3/2 {
				t.Errorf("a wait where none is named: got %v, want %v to %v", e.Wait, want, want*3/2)
			}
			want = min(2*want, 5*time.Second)
		}
	})
}

// An attempt whose outcome is not known may have taken a slot: it is asked for again under the same
// name.
func TestLostRepliesCostNoSlots(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquired = func(n int) error {
			if n < 8 {
				return errDown
			}
			return nil
		}
		h := hold(t, g, d, holder.Options{Wait: time.Minute})
		wantHeld(t, h, 0)
		nonces := g.asked()
		for _, nonce := range nonces {
			if nonce != nonces[0] || len(nonce) != 22 {
				t.Errorf("nonces: got %v, want one of 22 characters, always the same", nonces)
			}
		}
		expect.Equal(t, "slots that were taken", g.slots(), 1)
		g.wantAsked(t, 8)
	})
}

// A grant that is heard of only when it is repeated counts from when it was given, not from when it
// was repeated.
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
		h := hold(t, g, d, holder.Options{Wait: time.Minute})
		lease := must(h.Current())
		if age := lease.Now.Sub(lease.NotBefore); age < 10*time.Second || age > 25*time.Second {
			t.Fatalf("age of the grant: got %v, want 10s to 25s", age)
		}
		<-h.Context().Done()
		if left := lease.NotAfter.Sub(g.now()); left < margin || left > margin+time.Millisecond {
			t.Errorf("the lease ended %v before its window, want %v", left, margin)
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
		h := hold(t, g, d, holder.Options{Wait: time.Minute})
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
		h := hold(t, g, d, holder.Options{Wait: time.Hour})
		wantHeld(t, h, 1)
		if lease := must(h.Lease()); !lease.NotAfter.After(g.now()) {
			t.Errorf("Lease: got %+v, whose window has ended at %v", lease, g.now())
		}
		events := d.all()
		expect.Error(t, "the event before the last", events[len(events)-2].Err, holder.ErrLate)
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
			h, err := holder.Hold(t.Context(), g, holder.Options{Wait: -1, Observe: d.note})
			if row.used {
				if err != nil {
					t.Fatalf("Hold with %+v: got error %v, want none", row, err)
				}
				_ = h.Release(t.Context(), time.Time{})
				return
			}
			expect.Error(t, fmt.Sprintf("Hold with %+v", row), err, holder.ErrLate)
			g.wantAsked(t, 1)
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
			t.Errorf("slots that were taken: got %d, want 20 at most", n)
		}
		g.set(func() { g.back = 0 })
		time.Sleep(2 * ttl)
		expect.Error(t, "Err once replies are quick", h.Err(), nil)
		nonces := map[string]bool{}
		for _, nonce := range g.asked() {
			nonces[nonce] = true
		}
		if len(nonces) != len(g.asked()) {
			t.Errorf("nonces: got %d different ones of %d, want no grant that is of no use to be asked for again", len(nonces), len(g.asked()))
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
		_, err := holder.Hold(ctx, g, holder.Options{Wait: 2 * time.Hour, Observe: d.note})
		expect.Error(t, "Hold whose context ends", err, why)
		expect.Equal(t, "time that Hold took", time.Since(began), time.Second)
	})
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.acquire = func(int) error { return errFull(time.Hour) }
		h := holder.Start(t.Context(), g, holder.Options{Observe: d.note})
		time.Sleep(time.Minute)
		began := time.Now()
		release(t, h, time.Time{})
		expect.Equal(t, "time that Release took", time.Since(began), 0)
		g.wantGiven(t)
		wantNone(t, h, keepalive.ErrReleased)
		wantDone(t, h, true)
		d.want(t, holder.KindWaiting)
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
			_, err := holder.Hold(ctx, g, options)
			expect.Error(t, "Hold", err, why)
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
				start(ctx, deafToItsEnd{g}, holder.Options{Observe: d.note, Wait: time.Hour})
				g.wantGiven(t, 0)
				for _, one := range g.given() {
					expect.Equal(t, "until when it was used", one.used, one.lease.NotBefore)
				}
				expect.Equal(t, "slots that were taken", g.slots(), 1)
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
		h := hold(t, g, d, holder.Options{Wait: time.Minute, Wall: func() time.Time { return time.Now().Round(0).Add(ahead) }})
		wantHeld(t, h, 1)
		first := d.all()[0]
		expect.Equal(t, "kind of the first event", first.Kind, holder.KindWaiting)
		expect.Error(t, "the first event", first.Err, holder.ErrLate)
	})
}
