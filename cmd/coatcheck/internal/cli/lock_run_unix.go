//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/supervise"
)

func (r *lockRun) run(ctx context.Context, service *client.Client) error {
	return r.under(ctx, func(life context.Context) (tenure, error) {
		acquire := service.AcquireLock
		if r.request.Wait == 0 {
			acquire = service.TryAcquireLock
		}
		held, err := acquire(life, r.name, r.request)
		switch {
		case err != nil && life.Err() != nil:
			return nil, laterError{err} // a signal has ended the wait
		case err != nil:
			return nil, r.notObtained(err)
		}
		now := supervise.SinceBoot()
		return &lockTenure{held, r, now, time.Now().Add(-now).Round(0)}, nil
	})
}

type lockTenure struct {
	*client.Lock

	run     *lockRun
	granted time.Duration // by the boot clock, just after the grant
	// when the boot clock was at zero, by the wall clock as it was at the beginning
	epoch time.Time
}

func (h *lockTenure) TTL() time.Duration { return h.run.request.TTL }

func (*lockTenure) open(context.Context) error { return nil }

// giveBack releases the lock, or has it end later where it is to be held for longer than the
// command ran. A command that did not begin leaves it to others.
func (h *lockTenure) giveBack(end *supervise.End) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	rest := h.granted + h.run.atLeast - supervise.SinceBoot()
	if end == nil || !end.Began || rest <= 0 {
		_ = h.Release(ctx) // else it ends with its lease
		return
	}
	if err := h.ReleaseAfter(ctx, rest); err != nil && !errors.Is(err, client.ErrLost) {
		fmt.Fprintf(h.run.warnings, "coatcheck: warning: lock %s ends within its TTL of %v, which may be sooner or later than "+
			"--at-least: %v\n", h.Name(), h.TTL(), err)
	}
}

// Window is the end of the lease as it is known now. A lock counts as lost a while before, and the
// guard keeps an allowance of its own.
func (h *lockTenure) Window() (supervise.Window, error) {
	// before all else: a pause between here and the next line makes the end earlier, never later
	now := supervise.SinceBoot()
	left := h.Validity()
	if left <= 0 {
		return supervise.Window{}, laterError{fmt.Errorf("lock %s was lost before its command began", h.Name())}
	}
	end := (now + left + trust(h.TTL())).Truncate(time.Millisecond)
	return supervise.Window{Server: h.epoch.Add(end), Boot: end}, nil
}

// trust is how long before its lease can end a lock counts as lost in package client.
func trust(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

func (*lockTenure) TellsEnd() bool { return true }

func (h *lockTenure) Environment(file string) []string {
	return h.run.environment(
		"LOCK_NAME="+h.Name(),
		"LOCK_FENCE="+strconv.FormatInt(h.Fence(), 10),
		"LOCK_NOT_AFTER_FILE="+file)
}

// Gone reports whether a lock that was lost can be another's now: the store of locks has said so.
// Then the command has no time left to end by itself.
func (*lockTenure) Gone(cause error) bool {
	return errors.Is(cause, client.ErrLost) && !errors.Is(cause, client.ErrDeadline)
}

// Lost is the error of a command that was stopped because its lock was lost.
func (h *lockTenure) Lost(cause error) error {
	if h.Gone(cause) {
		return laterError{fmt.Errorf("lock %s, held with fence %d, was lost, and the command killed: %w\nAn operator broke it, Redis "+
			"lost it, or this machine was paused. Who holds it: %s",
			h.Name(), h.Fence(), cause, h.run.ls)}
	}
	return laterError{fmt.Errorf("lock %s, held with fence %d, was lost, and the command stopped before another process could hold it: %w\n"+
		"Look whether the service, or Redis, can be reached, and start the command again. A longer --ttl outlasts longer outages", h.Name(),
		h.Fence(), cause)}
}
