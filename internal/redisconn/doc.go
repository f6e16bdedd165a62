// Package redisconn turns a URL into options of go-redis's clients with which a store keeps its
// promises: no command is sent twice, and every call ends with its context.
package redisconn
