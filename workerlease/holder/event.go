package holder

import (
	"cmp"
	"log/slog"
	"time"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	// KindWaiting means that nothing was granted: Err is why, Wait the time until the next attempt.
	KindWaiting Kind = "waiting"
	KindGranted Kind = "granted" // a worker id is held from now on
	KindRenewed Kind = "renewed" // its window was moved
	// KindRenewalFailed means that a renewal failed, and that no loss is known: Err is the reason.
	KindRenewalFailed Kind = "renewal-failed"
	KindLost          Kind = "lost" // it is held no longer: Err says why
	// KindReleased means that the lease was given back or, with Err, ends with its window.
	KindReleased Kind = "released"
)

// Event is a change of a holder's state.
type Event struct {
	Kind     Kind
	Pool     string
	WorkerID int
	Err      error
	Wait     time.Duration
}

// logged returns options that also log that a holder of this pool waits, at warning level, once
// each time that it begins to, and how that ended. The leaser says how long a wait is expected to
// be.
func (o Options) logged(log *slog.Logger, pool string, from leaser) Options {
	observe, waits := o.Observe, false
	o.Observe = func(event Event) {
		switch {
		case event.Kind == KindWaiting && !waits:
			waits = true
			log.Warn("no worker id yet, and asking again", "pool", pool, "error", event.Err,
				"expected_in", cmp.Or(from.Judge(event.Err).Wait, event.Wait).Round(time.Millisecond))
		case event.Kind == KindGranted && waits:
			waits = false
			log.Info("a worker id is held after a wait", "pool", pool, "worker_id", event.WorkerID)
		}
		if observe != nil {
			observe(event)
		}
	}
	return o
}
