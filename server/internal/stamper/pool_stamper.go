package stamper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

type poolStamper struct {
	pool   string
	owner  string // whose place it takes
	log    *slog.Logger
	holder *holder.Holder
	ids    *holder.Stamper

	users int       // who is stamping; the Stamper's mutex guards it
	used  time.Time // when the last of them had done so; likewise

	mu      sync.Mutex
	news    chan struct{} // closed when asking or refusal change
	asking  bool          // a lease is being asked for, and nothing was heard yet
	refusal error         // why none was granted; nil while one is held or asked for
	until   time.Time     // before which asking again is no use
	closing bool          // the lease is being given back
}

// open begins to lease.
func (s *Stamper) open(pool, owner string) *poolStamper {
	d := &poolStamper{pool: pool, owner: owner, log: s.config.Logger, used: time.Now(), asking: true, news: make(chan struct{})}
	if s.keeps(pool) { // a name that the operator chose
		d.log = d.log.With("pool", pool)
	}
	wanted, fixed := s.config.Shapes[pool]
	if !fixed {
		wanted = Shape{Layout: snowflake.MustLayout(snowflake.DefaultLayout), Epoch: snowflake.DefaultEpoch}
	}
	shape := workerlease.Shape{Layout: wanted.Layout.String(), Epoch: wanted.Epoch}
	request := workerlease.Request{Identity: s.config.Identity, Shape: shape, WantLayout: fixed, WantEpoch: fixed}
	d.holder = s.pools.Start(s.life, pool, request, workerlease.HoldOptions{Observe: d.hear})
	d.ids = holder.NewStamper(d.holder, snowflake.Config{Spread: true})
	return d
}

func (d *poolStamper) hear(event holder.Event) {
	switch event.Kind {
	case holder.KindGranted:
		d.log.Info("worker id leased", "worker_id", event.WorkerID)
		d.note(false, nil, 0)
	case holder.KindLost:
		d.log.Warn("worker id lost; another is asked for", "worker_id", event.WorkerID, "error", event.Err)
		d.note(true, nil, 0)
	case holder.KindWaiting:
		level := slog.LevelDebug // it is asked for every few seconds
		if d.note(false, event.Err, waitOf(event)) {
			level = slog.LevelWarn
		}
		d.log.Log(context.Background(), level, "no worker id can be leased now", "error", event.Err, "again_in", event.Wait)
	case holder.KindRenewalFailed:
		d.log.Warn("the lease of a worker id was not renewed", "worker_id", event.WorkerID, "error", event.Err)
	case holder.KindReleased:
		if event.Err != nil {
			d.log.Warn("a worker id was not given back and ends with its window", "worker_id", event.WorkerID, "error", event.Err)
		}
	}
}

// waitOf is how long no grant can be had: the pool's answer, or until the next attempt.
func waitOf(event holder.Event) time.Duration {
	return cmp.Or(redisstore.RetryAfter(event.Err), event.Wait)
}

// note records an event, and reports whether a refusal is the first.
func (d *poolStamper) note(asking bool, refusal error, wait time.Duration) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = d.refusal == nil
	d.asking, d.refusal, d.until = asking, refusal, time.Now().Add(wait)
	close(d.news)
	d.news = make(chan struct{})
	return first
}

// askNow has a worker id that is waited for asked for at once.
func (d *poolStamper) askNow() {
	d.mu.Lock()
	waits := d.refusal != nil
	d.mu.Unlock()
	if waits && !d.over() {
		d.note(true, nil, 0)
		d.holder.AskNow()
	}
}

// over reports whether the pool has refused a lease for good.
func (d *poolStamper) over() bool {
	select {
	case <-d.holder.Done():
		return true
	default:
		return false
	}
}

// settle is how long a granted lease may take to be usable, or usable again.
const settle = 100 * time.Millisecond

// await waits until it is known whether there is a lease. The error is why there is none.
func (d *poolStamper) await(ctx context.Context) error {
	for began := time.Now(); ; {
		d.mu.Lock()
		asking, closing, refusal, news := d.asking, d.closing, d.stillLocked(), d.news
		d.mu.Unlock()
		switch {
		case closing:
			return givenBack()
		case refusal != nil:
			return refusal
		case ctx.Err() != nil: // also where a lease was granted at the same moment
			return ended(ctx)
		}
		pause := (<-chan time.Time)(nil)
		if !asking {
			err := d.holder.Err()
			if err == nil {
				return nil
			}
			if d.over() || time.Since(began) > settle {
				return &UnavailableError{Reason: "this server's lease of a worker id cannot be counted on now", Cause: err}
			}
			pause = time.After(time.Millisecond)
		}
		select {
		case <-news:
		case <-pause:
		case <-d.holder.Done():
			return d.refused(d.holder.Err())
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// ended is the error of a request that ended before it was stamped for.
func ended(ctx context.Context) error {
	return &UnavailableError{Reason: "no worker id was granted in the time that a request has", Cause: context.Cause(ctx)}
}

// stillLocked returns the refusal with the remaining wait.
func (d *poolStamper) stillLocked() error {
	if d.refusal == nil {
		return nil
	}
	left := max(time.Until(d.until), time.Millisecond)
	if again, ok := errors.AsType[*fault.WaitError](d.refusal); ok { // exhausted or quarantined
		later := &fault.WaitError{Err: again.Err, Wait: left, Text: again.Text}
		if _, isNew := errors.AsType[*workerlease.NewPoolError](d.refusal); isNew {
			return &workerlease.NewPoolError{Err: later}
		}
		return later
	}
	return d.refused(d.refusal)
}

// refused is the error when no worker id can be leased. A final error stays as it is.
func (d *poolStamper) refused(err error) error {
	if other, ok := errors.AsType[*workerlease.OtherPoolError](err); ok {
		return other
	}
	for _, final := range []error{redisstore.ErrWrongType, workerlease.ErrLayout, workerlease.ErrEnded} {
		if errors.Is(err, final) {
			return err
		}
	}
	return &UnavailableError{Reason: "no worker id can be leased now", Cause: err}
}

// stamp fills ids from one grant.
func (d *poolStamper) stamp(ctx context.Context, ids []snowflake.ID, with fill) (Origin, error) {
	for {
		if err := d.await(ctx); err != nil {
			return Origin{}, err
		}
		g, err := d.ids.Generator()
		if err == nil {
			err = with(g, ctx, ids)
		}
		switch {
		case err == nil:
			if origin, one := originOf(g, ids); one {
				return origin, nil
			}
		case errors.Is(err, snowflake.ErrStopped) && d.isClosing():
			return Origin{}, givenBack()
		case errors.Is(err, snowflake.ErrStopped), errors.Is(err, snowflake.ErrReshaped):
			// another generator is made, or was by another call
		case ctx.Err() != nil:
			return Origin{}, &UnavailableError{Reason: slow(g, len(ids)), Cause: err}
		default:
			return Origin{}, d.unstamped(err)
		}
	}
}

// slow is the reason why so many ids were not stamped. The generator is nil if there was none.
func slow(g *snowflake.Generator, n int) string {
	reason := fmt.Sprintf("%d ids were not stamped in the time that a request has", n)
	if g == nil {
		return reason
	}
	if layout, _, known := g.Layout(); known {
		reason += fmt.Sprintf("; layout %v has %d in %v", layout, int64(1)<<layout.Sequence, layout.Unit)
	}
	return reason
}

func (d *poolStamper) isClosing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closing
}

// unstamped is the reason why a generator that had a lease a moment ago has stamped nothing.
func (d *poolStamper) unstamped(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch refusal := d.stillLocked(); {
	case refusal != nil:
		return refusal
	case errors.Is(err, snowflake.ErrLayoutUsedUp):
		return fmt.Errorf("%w: %w", workerlease.ErrEnded, err)
	case errors.Is(err, snowflake.ErrWindowEnded):
		return &UnavailableError{Reason: "the window of this server's worker id has ended, and it was not renewed", Cause: err}
	case errors.Is(err, snowflake.ErrNoLease):
		return &UnavailableError{Reason: "this server's lease of a worker id cannot be counted on now", Cause: err}
	}
	return &UnavailableError{Reason: "the pool's layout cannot stamp the present", Cause: err}
}

// originOf is where ids come from that a generator stamped, if all come from one grant's worker id.
func originOf(g *snowflake.Generator, ids []snowflake.ID) (origin Origin, one bool) {
	layout, epoch, _ := g.Layout()
	origin = Origin{WorkerID: layout.Decode(ids[0], epoch).Worker, Layout: layout, Epoch: epoch}
	for _, id := range ids {
		if layout.Decode(id, epoch).Worker != origin.WorkerID {
			return origin, false
		}
	}
	return origin, true
}

func (d *poolStamper) origin() (Origin, bool) {
	layout, epoch, ok := d.ids.Layout()
	return Origin{Layout: layout, Epoch: epoch}, ok
}

func (d *poolStamper) status() Status {
	status := Status{Pool: d.pool}
	lease, err := d.holder.Current()
	if err == nil {
		status.Held, status.WorkerID, status.NotAfter = true, lease.WorkerID, lease.NotAfter
		return status
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	status.Err = d.stillLocked()
	if status.Err == nil && d.over() {
		status.Err = d.refused(err)
	}
	return status
}

// giveBack ends the stamping and gives the lease back, within the time that is left to a context
// that has ended.
func (d *poolStamper) giveBack(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	end()
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	_ = d.ids.Close(ctx) // heard and logged
}
