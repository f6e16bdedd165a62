package cli

import (
	"errors"
	"slices"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// isAny reports whether an error is of one of the kinds.
func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// kindOf gives an error its exit code.
func kindOf(err error) error {
	switch {
	case err == nil || errors.As(err, new(usageError)) || errors.As(err, new(laterError)) || errors.As(err, new(exitError)):
		return err
	case isAny(err, client.ErrInvalidRequest, lock.ErrRequest):
		return usageError{err}
	case isAny(err, client.ErrUnavailable, client.ErrExhausted, client.ErrQuarantined, client.ErrHeld, client.ErrAttemptRunning),
		// of commands that go to Redis themselves
		isAny(err, redisstore.ErrUnavailable, lock.ErrHeld, lock.ErrInDoubt):
		return laterError{err}
	}
	return err
}
