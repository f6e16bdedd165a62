// Package pipeline makes the calls of a store: it finds the server of a key, follows what Redis
// answers without having run anything, lets calls to one server share round trips without sharing
// their fate, and waits for the acknowledgement. Package redisstore says what it promises.
package pipeline
