// Package outages cuts calls to Redis on their way and holds what each was answered against what
// Redis has: a call that succeeded ran once; one that was told the store is unavailable did not
// run; one whose outcome is unknown ran once or not at all. What is cut: the connection before a
// request arrives, or after it was carried out and before its reply; a request is swallowed; Redis
// stands still and runs later what it was asked. Each call adds to a key of its own, and is made
// once.
//
// The same with go-redis as it is by default, which repeats what failed, shows that the check finds
// what it looks for.
package outages
