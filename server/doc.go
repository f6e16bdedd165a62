// Package server is the HTTP service: it decodes a request, calls one domain package and encodes
// its result. It decides nothing itself.
//
// What holds: every error is an RFC 9457 problem with a code of the outside contract, panics,
// unknown paths and wrong methods included; every response has an X-Request-Id; no log line holds a
// token, a key, a lease or a name that a client chose; every request ends within
// [Config.RequestTimeout]. When the store is away, requests that need it are answered 503 within
// the store's timeout and nothing is done.
//
// The handlers of each subject are a small type, which registers its own routes: see routes.go.
// errors.go is the one table from domain error to problem.
package server
