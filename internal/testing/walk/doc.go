// Package walk runs a small scene in every order of its points (package internal/step), or in
// random ones. It needs the build tag steps:
//
//	go test -tags=steps -run TestWalk ./snowflake -args -walk.rounds=100000
//
// # Every order
//
// [Every] runs the scene once for each order. In a run one goroutine goes on at a time, from its
// point to its next one, to where it waits, or to its end; then the walker chooses who is next.
// When all choices of a run have been made, it begins anew and makes the last choice that has
// another outcome differently, until none is left. A run is in a synctest bubble: time stands still
// while a goroutine is at a point, unless the walker chooses to let it pass. Where all orders are
// too many, [Scene.Preemptions] bounds how often a run leaves a goroutine that could go on. With
// -short, of a scene with more than 500 orders 500 and as many random ones run, the same ones each
// time.
//
// # Random orders
//
// [Rounds] runs it -walk.rounds times; many rounds are shared out among processes, as many at once
// as there are processors. In the even ones the walker chooses at random, by a seed that it prints:
// -walk.seed and -walk.from repeat one round alone. In the odd ones all goroutines run at once, and
// pause at points at random: the walker would hide data races from the race detector, since it has
// one goroutine go on after another.
//
// # What it cannot do
//
// A goroutine that waits at a point must not hold a [sync.Mutex] which another one of the scene
// takes: the run would hang. Such a mutex is a step.Mutex. Between two points nothing is varied.
package walk
