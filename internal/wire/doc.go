// Package wire holds what crosses HTTP and is needed on both sides or in more than one package: the
// problems that requests fail with. The catalogue of problems is here once; which domain error
// becomes which problem is said where the error is answered.
package wire
