package holder

import "time"

// Kind is what happened to a holder.
type Kind string

// The kinds of events.
const (
	// Waiting means that no grant was made: Err says why, Wait how long until the next attempt.
	Waiting Kind = "waiting"
	Granted Kind = "granted" // a worker id is held from now on
	Renewed Kind = "renewed" // its window was moved
	// RenewalFailed means that its window was not moved, and that it is not known to be lost: Err
	// says why.
	RenewalFailed Kind = "renewal-failed"
	Lost          Kind = "lost" // it is held no longer: Err says why
	// Released means that it was given back. If Err is set, that failed: it ends with its window.
	Released Kind = "released"
)

// Event is something that happened to a holder.
type Event struct {
	Kind     Kind
	Pool     string
	WorkerID int
	Err      error
	Wait     time.Duration
}
