// Package stable compares what coatcheck promises to keep with the last release: the HTTP
// interface, what the Go packages export, flags and settings, metrics, and keys in Redis. What is
// gone or narrower is a breaking change, and CHANGELOG.md has to announce it by its name:
//
//   - **Breaking** `GET /incr/{key}: query limit`: what to use instead.
//
// The list of each kind is a file of the tree that other tests keep true. The last release is a
// commit of this repository's history; the file release names it. docs/stability.md says what is
// promised.
package stable
