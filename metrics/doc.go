// Package metrics is what a process of coatcheck tells Prometheus. There is one convention for the
// service and the gateway: names begin with coatcheck_, numbers are in base units (seconds, bytes),
// what counts ends in _total, and a label has one of a few values that are known beforehand: the
// pattern of a route, a status, a word of ours. No label holds what a client sent: no name, no
// owner, no key, no token.
//
// [Store] is for every program that opens a [redisstore.Store]: it observes the store, [Store.Show]
// adds all that a scrape reads from the program, and [Registry.Collector] is for the registry that
// an application has. [Service] is that and the HTTP service's own. docs/metrics.md lists them all.
package metrics
