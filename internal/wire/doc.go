// Package wire holds the messages of HTTP that both sides or several packages need, and the
// catalogue of problems. The packages that answer map domain errors to problems.
package wire
