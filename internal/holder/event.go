package holder

import "time"

// Kind is what happened to a holder.
type Kind string

// The kinds of events.
const (
	Waiting       Kind = "waiting"        // no grant could be had: Err says why, Wait how long until the next attempt
	Granted       Kind = "granted"        // a worker id is held from now on
	Renewed       Kind = "renewed"        // its window was moved
	RenewalFailed Kind = "renewal-failed" // it was not, and it is not known to be lost: Err says why
	Lost          Kind = "lost"           // it is held no longer: Err says why
	Released      Kind = "released"       // it was given back; if Err is set, that failed and it ends with its window
)

// Event is something that happened to a holder.
type Event struct {
	Kind     Kind
	Pool     string
	WorkerID int
	Err      error
	Wait     time.Duration
}
