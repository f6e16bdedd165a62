// Package events remembers what happened last in one process of the service, and sends it to those
// who follow it, as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
//
// The Log is a ring of the last 1,024 events, which all subscribers read. One that reads too slowly
// misses events, is told how many at most, and holds up neither the others nor the service. What
// happens thousands of times a second is only counted.
package events
