// Package soak puts a running service and a gateway under what strangers do, beside clients that
// work, and looks from outside what it costs them: memory, goroutines, threads and file
// descriptors, by /proc and /metrics. It has only tests, and runs on Linux.
//
// The test looks for growth without end: after a time to warm up, no figure of the second half may
// lie above that of the first by more than a margin, and when all clients have left, connections
// and goroutines have to be as few as before. Working clients have to get right answers throughout.
package soak
