// Package api has the bodies of the HTTP interface, of every request and reply, and the catalogue
// of problems. The service answers with these types, package client returns them, and the commands
// print them with --json; openapi/openapi.yaml describes them, and a test compares the two.
//
// Durations are whole milliseconds, and their names end in Ms. Times are written as RFC 3339. In a
// request a field that is a pointer may be left out. A token, a lease and a key are secrets; no
// other field holds one.
package api
