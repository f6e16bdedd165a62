//go:build steps

package keepalive_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
)

// kept counts the renewals of a lease that are under way, and notes those that it must not have.
type kept struct {
	answer   error
	renewing atomic.Int64
	stopped  atomic.Bool
	late     atomic.Bool // a renewal, or an end, after Stop had returned or while it did
}

func (k *kept) renew() error {
	k.renewing.Add(1)
	k.late.Store(k.late.Load() || k.stopped.Load())
	step.At("granter: a renewal arrives")
	k.renewing.Add(-1)
	return k.answer
}

func (k *kept) end(error) { k.late.Store(k.late.Load() || k.stopped.Load()) }

// stop stops twice at once, as two deferred calls do.
func (k *kept) play(stop func(), valid func() error) walk.Play {
	stopper := func() {
		stop()
		k.late.Store(k.late.Load() || k.renewing.Load() > 0)
		k.stopped.Store(true)
	}
	check := func() error {
		if k.late.Load() {
			return errors.New("a renewal was under way, or the lease ended, once Stop had returned")
		}
		return valid()
	}
	return walk.Play{Tasks: []walk.Task{{Name: "stopper", Do: stopper}, {Name: "another", Do: stopper}}, Check: check, Close: stop}
}

func keeper(answer error) func(t *testing.T) walk.Play {
	return func(t *testing.T) walk.Play {
		k := &kept{answer: answer}
		keeper := keepalive.Start(t.Context(), time.Now(), time.Now().Round(0), keepalive.Config{
			TTL: ttl, Renew: func(context.Context) error { return k.renew() }, Lost: func(err error) bool { return errors.Is(err, errGone) },
		})
		return k.play(keeper.Stop, func() error {
			if keeper.Context().Err() == nil || keeper.Valid() > 0 {
				return errors.New("the lease is counted on after Stop")
			}
			return nil
		})
	}
}

func heartbeat(answer error) func(t *testing.T) walk.Play {
	return func(*testing.T) walk.Play {
		k := &kept{answer: answer}
		beat := keepalive.Beat(time.Now(), keepalive.Claim{
			Lease: ttl, Extend: k.renew, Lost: func(err error) bool { return errors.Is(err, errGone) },
			Failed: func(error) {}, End: k.end, Late: keepalive.ErrDeadline,
		})
		return k.play(beat.Stop, func() error { return nil })
	}
}

func TestWalkEveryOrderOfAStop(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) walk.Play{
		"keeper": keeper(nil), "keeper that loses its lease": keeper(errGone), "keeper whose renewal fails": keeper(errDown),
		"heartbeat": heartbeat(nil), "heartbeat that loses its claim": heartbeat(errGone), "heartbeat whose extension fails": heartbeat(errDown),
	} {
		t.Run(name, func(t *testing.T) {
			// a renewal is due after a third of the TTL, give or take a tenth; the lease ends
			// after a TTL
			walk.Every(t, walk.Scene{Ticks: 3, Tick: 12 * time.Second, Preemptions: 4, Begin: begin})
			walk.Every(t, walk.Scene{Ticks: 1, Tick: ttl - margin, Begin: begin})
		})
	}
}

func TestWalkRandomOrdersOfAStop(t *testing.T) {
	for _, answer := range []error{nil, errGone, errDown} {
		walk.Rounds(t, walk.Scene{Ticks: 4, Tick: 10 * time.Second, Begin: keeper(answer)})
		walk.Rounds(t, walk.Scene{Ticks: 4, Tick: 10 * time.Second, Begin: heartbeat(answer)})
	}
}
