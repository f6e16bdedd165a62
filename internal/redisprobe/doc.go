// Package redisprobe looks at the servers of a store, for doctor and for the banner of a service:
// what they are ([Inspect]), how they can lose state by themselves ([Hazards]), and what the
// store's user may run there ([Rights], [Denied]).
package redisprobe
