package snowflake

import (
	"fmt"
	"time"
)

// Lease is the permission to stamp: a worker id for a window of id timestamps, the form of the ids,
// and a clock that was anchored when the lease was granted.
type Lease struct {
	// of the ids: the source of the worker id knows it, and a generator takes it from here
	Layout     Layout
	Epoch      time.Time // that their timestamps count from
	Worker     int       // 0 to 2^Layout.Worker-1
	Datacenter int       // 0 to 2^Layout.Datacenter-1; 0 where the layout has none
	// names the grant: two leases with one fence are the same grant, perhaps renewed
	Fence int64
	// the confirmed window [NotBefore, NotAfter) of timestamps, by the Redis server's clock
	NotBefore time.Time
	NotAfter  time.Time
	Time      time.Time // the server's time at the moment At (never later than the truth)
	At        time.Time // local, with its monotonic reading
}

// Worker returns what may be stamped now. It is safe for concurrent use. It is asked a few thousand
// times a second at most, must not wait, and must not call the generator that asks. The error is
// why nothing may be stamped; it is wrapped together with ErrNoLease.
type Worker interface {
	Lease() (Lease, error)
}

// Static is a worker id that a process was given by hand, for ids of a layout and an epoch (the
// zero time = DefaultEpoch), without limits on when it may be used: the window begins with the unit
// of this call and has no end, and the clock is the machine's wall clock at the moment of this
// call, running monotonically from then on.
//
// Nothing checks it. Ids are unique only if no other process ever stamps with the same datacenter
// and worker id in the same layout and epoch, and if, from one run of the process to the next, the
// wall clock never goes back, by no more than MaxLead and one unit less than the pause between the
// runs. A container image, a copied configuration file or a machine that is restored from a
// snapshot breaks the first; a clock that is set back breaks the second. While the machine is
// suspended the clock stands still, so that ids are late afterwards. A leased worker id has none of
// these faults.
//
// The error is ErrMisfit if the layout is not valid, or datacenter or worker do not fit it.
func Static(layout Layout, epoch time.Time, datacenter, worker int) (StaticWorker, error) {
	if err := layout.check(); err != nil {
		return StaticWorker{}, fmt.Errorf("%w: %w", ErrMisfit, err)
	}
	if epoch.IsZero() {
		epoch = DefaultEpoch
	}
	if err := layout.fits(datacenter, worker); err != nil {
		return StaticWorker{}, err
	}
	now := time.Now()
	_, rest := layout.units(epoch, now) // ids may have the unit that has begun
	return StaticWorker{Lease{
		Layout: layout, Epoch: epoch, Worker: worker, Datacenter: datacenter, Fence: 1,
		NotBefore: now.Add(-rest), NotAfter: endless, Time: now, At: now,
	}}, nil
}

// endless is later than any timestamp of a layout in use.
var endless = time.Unix(1<<55, 0)

// StaticWorker is a Worker with one lease for ever, from Static; the zero value's has ended.
type StaticWorker struct{ lease Lease }

// Lease gives the lease.
func (s StaticWorker) Lease() (Lease, error) { return s.lease, nil }

// fits reports whether datacenter and worker id fit their bits.
func (l Layout) fits(datacenter, worker int) error {
	switch {
	case worker < 0 || worker >= 1<<l.Worker:
		return fmt.Errorf("%w %v: worker id %d: 0 to %d", ErrMisfit, l, worker, 1<<l.Worker-1)
	case datacenter < 0 || datacenter >= 1<<l.Datacenter:
		return fmt.Errorf("%w %v: datacenter %d: 0 to %d", ErrMisfit, l, datacenter, 1<<l.Datacenter-1)
	}
	return nil
}
