package keepalive_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl    = 30 * time.Second
	margin = time.Second // the default of that TTL
)

var (
	errDown = errors.New("down")
	errGone = errors.New("gone")
)

// far is who renews, on the other side of a network: answer says what becomes of the renewal that
// is asked for as the nth.
type far struct {
	answer func(ctx context.Context, n int) error

	mu     sync.Mutex
	asked  []time.Time
	failed []error
	ahead  atomic.Int64 // by how much the wall clock is
}

func (f *far) renew(ctx context.Context) error {
	f.mu.Lock()
	f.asked = append(f.asked, time.Now())
	n := len(f.asked)
	f.mu.Unlock()
	if f.answer == nil {
		return nil
	}
	return f.answer(ctx, n)
}

func (f *far) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, err)
}

func (f *far) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *far) failures() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.failed)
}

func (f *far) wall() time.Time { return time.Now().Round(0).Add(time.Duration(f.ahead.Load())) }

func (f *far) jump(d time.Duration) { f.ahead.Add(int64(d)) }

func (f *far) config() keepalive.Config {
	return keepalive.Config{
		TTL: ttl, Renew: f.renew, Lost: func(err error) bool { return errors.Is(err, errGone) }, Failed: f.fail, Wall: f.wall,
	}
}

// keep starts to keep a lease that was granted just now.
func keep(t *testing.T, f *far, change func(*keepalive.Config)) *keepalive.Keeper {
	t.Helper()
	config := f.config()
	if change != nil {
		change(&config)
	}
	k := keepalive.Start(t.Context(), time.Now(), f.wall(), config)
	t.Cleanup(k.Stop)
	return k
}

// wantEnd waits for the end of a lease and checks when it came, counted from a moment, and why.
func wantEnd(t *testing.T, k *keepalive.Keeper, from time.Time, want time.Duration, cause error) {
	t.Helper()
	<-k.Context().Done()
	expect.Equal(t, "time until the lease ended", time.Since(from), want)
	wantEnded(t, k, cause)
}

// wantEnded checks that a lease has ended, and why.
func wantEnded(t *testing.T, k *keepalive.Keeper, cause error) {
	t.Helper()
	expect.Error(t, "cause of the lease's end", context.Cause(k.Context()), cause)
	wantNoTrust(t, k)
}

func wantNoTrust(t *testing.T, k *keepalive.Keeper) {
	t.Helper()
	if left := k.Valid(); left > 0 {
		t.Errorf("Valid: got %v, want no more than 0", left)
	}
}

func wantAlive(t *testing.T, k *keepalive.Keeper) {
	t.Helper()
	expect.Error(t, "cause of the lease's end", context.Cause(k.Context()), nil)
}

// wantAsked checks how many renewals were asked for.
func (f *far) wantAsked(t *testing.T, times int) {
	t.Helper()
	expect.Equal(t, "renewals", len(f.times()), times)
}

// gaps are the pauses between moments.
func gaps(times []time.Time) (all []time.Duration) {
	for i := range times[1:] {
		all = append(all, times[i+1].Sub(times[i]))
	}
	return all
}

// wantGaps checks that pauses are want, spread by a tenth, and not all the same.
func wantGaps(t *testing.T, all []time.Duration, want time.Duration) {
	t.Helper()
	for i, gap := range all {
		if gap < want*9/10 || gap > want*11/10 {
			t.Errorf("pause %d of %d is %v, want %v and a tenth more or less", i, len(all), gap, want)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) < len(all)/2 {
		t.Errorf("pauses are not spread: %v", all)
	}
}

func TestRenewsThreeTimesATTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		began := time.Now()
		k := keep(t, f, nil)
		for time.Since(began) < 100*ttl {
			time.Sleep(100 * time.Millisecond)
			if left := k.Valid(); left <= 0 || left > ttl-margin {
				t.Fatalf("Valid after %v: got %v, want more than 0 and up to %v", time.Since(began), left, ttl-margin)
			}
		}
		wantAlive(t, k)
		times := f.times()
		if len(times) < 285 || len(times) > 315 {
			t.Errorf("renewals in 100 TTLs: got %d, want 285 to 315", len(times))
		}
		wantGaps(t, append(gaps(times), times[0].Sub(began)), ttl/3)
	})
}

// A reply that takes long is not waited for before the next renewal's time is reckoned.
func TestPausesCountFromWhereARenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(context.Context, int) error { time.Sleep(5 * time.Second); return nil }}
		keep(t, f, nil)
		time.Sleep(20 * ttl)
		wantGaps(t, gaps(f.times()), ttl/3)
	})
}

func TestRenewsFasterWhileRenewalsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(_ context.Context, n int) error {
			if n >= 3 && n < 7 {
				return errDown
			}
			return nil
		}}
		k := keep(t, f, nil)
		time.Sleep(4 * ttl)
		wantAlive(t, k)
		all := gaps(f.times())
		wantGaps(t, all[:2], ttl/3)
		wantGaps(t, all[2:6], ttl/12)
		wantGaps(t, all[6:], ttl/3)
		expect.Equal(t, "failures that were told", f.failures(), []error{errDown, errDown, errDown, errDown})
	})
}

// Whatever becomes of renewals: the lease ends when a TTL less the margin has passed since the last
// confirmed one was sent.
func TestLeaseEndsWhateverRedisDoes(t *testing.T) {
	var released chan struct{}
	for name, answer := range map[string]func(ctx context.Context) error{
		"refuses":                        func(context.Context) error { return errDown },
		"hangs until the caller's end":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"hangs whatever the caller says": func(context.Context) error { <-released; return errDown },
		"fails late":                     func(context.Context) error { time.Sleep(time.Hour); return errDown },
		"confirms too late":              func(context.Context) error { time.Sleep(time.Hour); return nil },
		"says too late that it is lost":  func(context.Context) error { time.Sleep(time.Hour); return errGone },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released = make(chan struct{})
				f := &far{answer: func(ctx context.Context, n int) error {
					if n <= 2 {
						time.Sleep(2 * time.Second) // these are confirmed
						return nil
					}
					return answer(ctx)
				}}
				k := keep(t, f, nil)
				<-k.Context().Done()
				wantEnd(t, k, f.times()[1], ttl-margin, keepalive.ErrDeadline)
				asked := len(f.times())
				close(released)
				time.Sleep(3 * time.Hour)
				wantEnded(t, k, keepalive.ErrDeadline)
				f.wantAsked(t, asked)
			})
		})
	}
}

// A grant that is good for less than a TTL is renewed within that, and ends with it if it is not.
func TestGrantForLessThanATTL(t *testing.T) {
	const first = 3 * time.Second
	short := func(c *keepalive.Config) { c.First = first }
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(context.Context, int) error { return errDown }}
		began := time.Now()
		k := keep(t, f, short)
		wantEnd(t, k, began, first*9/10, keepalive.ErrDeadline)
		asked := append([]time.Time{began}, f.times()...)
		expect.Equal(t, "time until the first renewal", asked[1].Sub(began), 20*time.Millisecond)
		wantGaps(t, gaps(asked)[1:], first/12)
		if len(asked) < 5 {
			t.Errorf("renewals: got %d, want 4 or more", len(asked)-1)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(ctx context.Context, n int) error {
			switch n {
			case 1: // hangs, and leaves time for another
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return nil
			}
			return errDown
		}}
		k := keep(t, f, short)
		expect.Equal(t, "Valid at first", k.Valid(), first*9/10)
		<-k.Context().Done()
		wantEnd(t, k, f.times()[1], ttl-margin, keepalive.ErrDeadline)
	})
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		k := keep(t, f, short)
		f.jump(first)
		wantNoTrust(t, k)
	})
}

// A renewal that hangs must leave time for another one.
func TestOneRenewalThatHangsCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(ctx context.Context, n int) error {
			if n%2 == 0 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		k := keep(t, f, nil)
		time.Sleep(20 * ttl)
		wantAlive(t, k)
		if len(f.failures()) < 10 {
			t.Errorf("renewals that hung: got %d, want 10 or more", len(f.failures()))
		}
	})
}

// A reply may come in the very moment in which the lease ends. A nanosecond before is in time.
func TestConfirmationBesideTheDeadline(t *testing.T) {
	for _, row := range []struct {
		early time.Duration
		alive bool
	}{{-time.Nanosecond, false}, {0, false}, {time.Nanosecond, true}} {
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(ttl - margin)
				f := &far{}
				f.answer = func(context.Context, int) error {
					time.Sleep(time.Until(end) - row.early)
					return nil
				}
				k := keep(t, f, nil)
				time.Sleep(time.Until(end) + 2*time.Nanosecond)
				synctest.Wait()
				if alive := k.Context().Err() == nil; alive != row.alive || alive != (k.Valid() > 0) {
					t.Fatalf("a reply %v before the end: got alive %v, which can be trusted for %v, want alive %v", row.early, alive, k.Valid(), row.alive)
				}
			})
		}
	}
}

func TestLostLeaseEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{answer: func(_ context.Context, n int) error {
			if n < 3 {
				return nil
			}
			time.Sleep(time.Second)
			return errGone
		}}
		k := keep(t, f, nil)
		<-k.Context().Done()
		wantEnd(t, k, f.times()[2], time.Second, keepalive.ErrLost)
		wantEnded(t, k, errGone)
		time.Sleep(time.Hour)
		f.wantAsked(t, 3)
		expect.Equal(t, "failures that were told", f.failures(), nil)
	})
}

func TestEndOfTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		why := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		k := keepalive.Start(ctx, time.Now(), f.wall(), f.config())
		time.Sleep(ttl)
		asked := len(f.times())
		began := time.Now()
		cancel(why)
		wantEnd(t, k, began, 0, why)
		time.Sleep(time.Hour)
		f.wantAsked(t, asked)
		k.Stop() // for nothing
		wantEnded(t, k, why)
	})
}

func TestStopEndsTheKeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		k := keep(t, f, nil)
		time.Sleep(ttl)
		asked := len(f.times())
		began := time.Now()
		for range 3 {
			k.Stop()
		}
		wantEnd(t, k, began, 0, keepalive.ErrReleased)
		time.Sleep(time.Hour)
		f.wantAsked(t, asked)
	})
}

// Who stops wants to give the lease back: no renewal may come after that.
func TestStopWaitsForTheRenewalUnderWay(t *testing.T) {
	for name, reply := range map[string]error{"confirmed": nil, "failed": errDown, "lost": errGone} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended atomic.Bool
				f := &far{answer: func(context.Context, int) error { time.Sleep(3 * time.Second); ended.Store(true); return reply }}
				k := keep(t, f, nil)
				for len(f.times()) == 0 {
					time.Sleep(time.Second / 2)
				}
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						k.Stop()
						if !ended.Load() {
							t.Error("Stop: returned while a renewal was under way")
						}
					})
				}
				synctest.Wait()
				wantEnded(t, k, keepalive.ErrReleased) // while the renewal hangs
				all.Wait()
				time.Sleep(time.Hour)
				wantEnded(t, k, keepalive.ErrReleased)
				f.wantAsked(t, 1)
				expect.Equal(t, "failures that were told", f.failures(), nil)
			})
		})
	}
}

func TestMargin(t *testing.T) {
	for _, row := range []struct{ ttl, margin, lasts time.Duration }{
		{30 * time.Second, 0, 29 * time.Second}, {time.Second, 0, 900 * time.Millisecond}, {24 * time.Hour, 0, 24*time.Hour - time.Second},
		{30 * time.Second, -time.Second, 29 * time.Second}, {30 * time.Second, 10 * time.Second, 20 * time.Second},
		{30 * time.Second, time.Nanosecond, 30*time.Second - time.Nanosecond}, {30 * time.Second, time.Hour, 15 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			f := &far{answer: func(context.Context, int) error { return errDown }}
			k := keep(t, f, func(c *keepalive.Config) { c.TTL, c.Margin = row.ttl, row.margin })
			wantEnd(t, k, began, row.lasts, keepalive.ErrDeadline)
		})
	}
}

// A grant that is older than its reply has less than its TTL left.
func TestGrantThatWasSentLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &far{answer: func(context.Context, int) error { return errDown }}
		began := time.Now()
		k := keepalive.Start(t.Context(), began.Add(-20*time.Second), down.wall().Add(-20*time.Second), down.config())
		wantEnd(t, k, began, ttl-margin-20*time.Second, keepalive.ErrDeadline)
		expect.Equal(t, "time until the first renewal", down.times()[0].Sub(began), 0)
		k.Stop()

		k = keepalive.Start(t.Context(), time.Now().Add(-ttl), down.wall().Add(-ttl), down.config())
		wantNoTrust(t, k)
		wantEnd(t, k, time.Now(), 0, keepalive.ErrDeadline)
		k.Stop()
	})
}

// A lease that is given back before there was anything to do for it never had a goroutine; stopping
// again does nothing, then as well as later.
func TestStoppingAtOnceAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Minute} {
			f := &far{}
			k := keepalive.Start(t.Context(), time.Now(), f.wall(), f.config())
			time.Sleep(after)
			asked := len(f.times())
			k.Stop()
			k.Stop()
			time.Sleep(ttl)
			wantEnd(t, k, time.Now(), 0, keepalive.ErrReleased)
			f.wantAsked(t, asked)
			expect.Equal(t, "it was renewed before it was given back", asked > 0, after > 0)
		}
	})
}
