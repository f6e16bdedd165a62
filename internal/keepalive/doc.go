// Package keepalive keeps a lease alive while its holder needs it, and tells the holder that it may
// have ended before any other can have it.
//
// What it promises: the holder's context ends at the latest when margin is left of the
// time-to-live, counted from the moment before the last renewal that was confirmed was sent. A
// timer sees to that, which waits for no reply: it holds however long Redis is silent. What it
// needs for it: that the process runs. A process that is paused, and goes on, hears of it late; so
// every use asks [Keeper.Valid] as well, which counts monotonic and wall time, whichever is later,
// since the monotonic clock of Linux stands still while a machine sleeps.
//
// A wall clock that is set forward looks like a machine that has slept. The lease then counts as
// ended until a renewal says otherwise, which is asked for within a second; if that fails the lease
// has ended. Where [Config].Strict says so it ends at once. A wall clock that is set back changes
// nothing.
package keepalive
