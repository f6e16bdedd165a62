package holder

import "time"

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	// Waiting means that nothing was granted: Err is why, Wait the time until the next attempt.
	Waiting Kind = "waiting"
	Granted Kind = "granted" // a worker id is held from now on
	Renewed Kind = "renewed" // its window was moved
	// RenewalFailed means that a renewal failed, and that no loss is known: Err is the reason.
	RenewalFailed Kind = "renewal-failed"
	Lost          Kind = "lost" // it is held no longer: Err says why
	// Released means that the lease was given back or, with Err, ends with its window.
	Released Kind = "released"
)

// Event is a change of a holder's state.
type Event struct {
	Kind     Kind
	Pool     string
	WorkerID int
	Err      error
	Wait     time.Duration
}
