package holder

import (
	"cmp"
	"log/slog"
	"time"
)

// Logged returns options that also log that a holder of this pool waits, at warning level, once
// each time that it begins to, and how that ended. The leaser says how long a wait is expected to
// be.
func (o Options) Logged(log *slog.Logger, pool string, leaser Leaser) Options {
	observe, waits := o.Observe, false
	o.Observe = func(event Event) {
		switch {
		case event.Kind == Waiting && !waits:
			waits = true
			log.Warn("no worker id yet, and asking again", "pool", pool, "error", event.Err,
				"expected_in", cmp.Or(leaser.Judge(event.Err).Wait, event.Wait).Round(time.Millisecond))
		case event.Kind == Granted && waits:
			waits = false
			log.Info("a worker id is held after a wait", "pool", pool, "worker_id", event.WorkerID)
		}
		if observe != nil {
			observe(event)
		}
	}
	return o
}
