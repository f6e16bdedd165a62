package number

import (
	"errors"
	"fmt"
)

// Why a text is no template, no calendar key or no number, or why a value cannot be written.
var (
	// ErrTemplate means that a text is no template. It says where, and what to write instead. The
	// zero Template's methods return it too.
	ErrTemplate = errors.New("number: not a template")
	// ErrKey means that a text is no calendar key. It says where, and what to write instead. The
	// zero CalendarKey's methods return it too.
	ErrKey = errors.New("number: not a calendar key")
	// ErrCoarse means that a template writes values of different periods of a calendar key alike.
	ErrCoarse = errors.New("number: the template does not tell the key's periods apart")
	// ErrSyntax means a text that the opaque form never writes.
	ErrSyntax = errors.New("number: not of this form")
	// ErrWidth means that a value has more digits than its place. It comes as a *TooWideError.
	ErrWidth = errors.New("number: too large")
	// ErrNegative means that a value is negative.
	ErrNegative = errors.New("number: negative")
	// ErrTime means that a time cannot be written.
	ErrTime = errors.New("number: out of the calendar")
)

// TooWideError is [ErrWidth] with the largest value that can be written. It does not contain the
// value, which an opaque number hides.
type TooWideError struct{ Max int64 }

// Error reports the largest value.
func (e *TooWideError) Error() string { return fmt.Sprintf("%v: %d at most", ErrWidth, e.Max) }

// Unwrap returns ErrWidth.
func (e *TooWideError) Unwrap() error { return ErrWidth }

// check reports whether a value lies between 0 and most.
func check(value, most int64) error {
	switch {
	case value < 0:
		return ErrNegative
	case value > most:
		return &TooWideError{most}
	}
	return nil
}
