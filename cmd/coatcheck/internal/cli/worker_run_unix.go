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
	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

func (r *workerRun) run(ctx context.Context, service *client.Client) error {
	return r.under(ctx, func(life context.Context) (tenure, error) { return r.obtain(life, service) })
}

func (h *held) TTL() time.Duration { return h.lease.TTL }

// usedUntil is the end of the last timestamp that a command can have stamped whose clock read last
// at the latest. Only the command knows its timestamps.
func (h *held) usedUntil(last time.Time) time.Time {
	layout, err := snowflake.ParseLayout(h.lease.Layout)
	if last.IsZero() || err != nil {
		return time.Time{} // not known
	}
	return last.Add(max(layout.Unit, h.run.ahead))
}

// attempt asks once for a lease, and refuses a slow one: the holder's clock begins when the reply
// comes, and is as late as the reply.
func (r *workerRun) attempt(ctx context.Context, service *client.Client) (*held, error) {
	h := &held{run: r}
	asked := supervise.SinceBoot()
	var err error
	h.Holder, err = service.HoldWorker(ctx, r.pool, r.request, client.HoldOptions{Once: true, Wait: -1, Observe: h.observe})
	if err != nil {
		return nil, err
	}
	h.late = supervise.SinceBoot() - asked
	h.lease, err = h.Current()
	if err == nil && h.late <= h.lease.TTL/4 {
		return h, nil
	}
	h.giveBack(nil)
	return nil, errors.Join(holder.ErrLate, err)
}

// observe records the outcome of the last renewal.
func (h *held) observe(e holder.Event) {
	if e.Kind == holder.KindRenewed || e.Kind == holder.KindRenewalFailed {
		h.fault.Store(&e.Err)
	}
}

// open waits until the window of a lease has begun.
func (h *held) open(ctx context.Context) error {
	lease, err := h.Lease()
	if err != nil {
		return laterError{err}
	}
	pause(ctx, lease.NotBefore.Sub(lease.Time)-time.Since(lease.At))
	return nil
}

// giveBack releases the lease, with the end of the last timestamp that may have been stamped.
func (h *held) giveBack(end *supervise.End) {
	usedUntil := h.lease.NotBefore
	if end != nil {
		usedUntil = h.usedUntil(end.Last)
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = h.Release(ctx, usedUntil) // else it ends with its window
}

// Window is the end of the lease's window as it is known now.
func (h *held) Window() (supervise.Window, error) {
	// before all else: a pause between here and the last line makes the end earlier, never later
	now := supervise.SinceBoot()
	lease, err := h.Lease()
	return supervise.Window{Server: lease.NotAfter, Boot: now + remaining(lease) - h.late}, err
}

// remaining is the rest of a lease's window. A machine may have slept since the lease's clock was
// read.
func remaining(lease snowflake.Lease) time.Duration {
	return lease.NotAfter.Sub(lease.Time) - keepalive.Age(lease.At)
}

func (*held) TellsEnd() bool { return true }

func (h *held) Environment(file string) []string {
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	return h.run.environment(
		"WORKER_ID="+strconv.Itoa(h.lease.WorkerID),
		"WORKER_POOL="+h.lease.Pool,
		"WORKER_LAYOUT="+h.lease.Layout,
		"WORKER_EPOCH_MS="+millis(h.lease.Epoch),
		"WORKER_DATACENTER="+strconv.Itoa(h.lease.Datacenter),
		"WORKER_FENCE="+strconv.FormatInt(h.lease.Fence, 10),
		"WORKER_NOT_BEFORE_MS="+millis(h.lease.NotBefore),
		"WORKER_NOT_AFTER_MS="+millis(h.lease.NotAfter),
		"WORKER_NOT_AFTER_FILE="+file)
}

// Gone is false: after a lost lease the window is still the command's, to its end.
func (*held) Gone(error) bool { return false }

// Lost is the error of a command that was stopped because its window would end.
func (h *held) Lost(cause error) error {
	if fault := h.fault.Load(); fault != nil && *fault != nil {
		cause = fmt.Errorf("%w; the last one failed: %w", cause, *fault)
	}
	return laterError{fmt.Errorf("worker id %d of pool %q was lost, and the command stopped before the window of its lease could end: %w\n"+
		"Look whether the service, or Redis, can be reached, and start the command again. A longer --ttl outlasts longer outages",
		h.lease.WorkerID, h.lease.Pool, cause)}
}
