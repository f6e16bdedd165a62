package cli

import (
	"errors"
	"slices"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

func shownPool(pool client.Pool) api.WorkerPool {
	return api.WorkerPool{
		Pool: pool.Name, Layout: pool.Layout, Epoch: pool.Epoch, Datacenter: pool.Datacenter, Size: pool.Size, Used: pool.Used,
		TTLMs: pool.TTL.Milliseconds(), EndsAt: pool.EndsAt, QuarantinedMs: pool.Quarantined.Milliseconds(),
	}
}

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
