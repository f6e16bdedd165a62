// Package step names the points at which the order of goroutines decides something: where one has
// just decided by an atomic, or has let go of a mutex between two steps. At each of them a test can
// make it wait, so that it meets every order on purpose instead of one in a million by luck.
//
// Without the build tag steps there is nothing: [At] has no code, and [Mutex] is [sync.Mutex]. With
// it, tests set a hook; package internal/testing/walk does, to walk every order or a random one.
//
// A point has the name of its package and what has just been decided: "snowflake: drew". No code
// but that of tests may depend on points.
package step
