// Package class has the three classes of failure that the library and its client share.
package class

import "errors"

// Every error of a store or of a service is one of these under errors.Is.
var (
	// ErrRefused means that nothing happened: asking again is harmless and may help.
	ErrRefused = errors.New("refused, nothing was done")
	// ErrLost means that the caller no longer holds it: stop using it.
	ErrLost = errors.New("lost, no longer held")
	// ErrUnknownOutcome means that the write may or may not have happened, or may be lost again.
	// Ask again with the same owner, nonce or request id, or treat it as both done and not done.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Refusal returns a sentinel error of the class [ErrRefused]. Domains declare their own with it.
func Refusal(text string) error { return &sentinel{text, ErrRefused} }

// Loss returns a sentinel error of the class [ErrLost].
func Loss(text string) error { return &sentinel{text, ErrLost} }

// Of returns a sentinel error that is another one under errors.Is.
func Of(is error, text string) error { return &sentinel{text, is} }

type sentinel struct {
	text string
	is   error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.is }
