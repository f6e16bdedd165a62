// Package keepalive keeps a lease alive while its holder needs it, and tells the holder that it may
// have ended before any other can have it.
//
// The promise: the holder's context ends when only margin remains of the time-to-live, counted from
// before the last confirmed renewal was sent. A timer that waits for no reply ends it, however long
// Redis is silent. The process has to run for that. A paused process learns of it late; so every
// use asks [Keeper.Valid] as well, which counts monotonic and wall time, whichever is later, since
// the monotonic clock of Linux stands still while a machine sleeps.
//
// A wall clock that is set forward looks like a machine that has slept. The lease then counts as
// ended until a renewal confirms it, which is sent within a second; if that fails the lease has
// ended. With [Config].Strict it ends at once. A wall clock that is set back changes nothing.
package keepalive
