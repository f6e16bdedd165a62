// Package pipeline makes the calls of a store: it finds the server of a key, follows redirects,
// lets calls to one server share round trips but not outcomes, and waits for the acknowledgement.
// Package redisstore has its promises.
package pipeline
