// Package events remembers the last events of one process of the service, and sends them to
// subscribers, as server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
//
// The Log is a ring of the last 1,024 events, which all subscribers read. One that reads too slowly
// misses events, is told how many at most, and holds up neither the others nor the service.
// Frequent events are only counted.
package events
