package redisstore

import (
	"errors"
	"time"
)

// RetryAfter returns how long to wait before asking again can help: the result of the first method
// RetryAfter in err's tree; 0 if there is none, or it does not know. All errors of domains with a
// wait have that method, and so do those of package client.
func RetryAfter(err error) time.Duration {
	type timed interface {
		error
		RetryAfter() time.Duration
	}
	if said, ok := errors.AsType[timed](err); ok {
		return said.RetryAfter()
	}
	return 0
}
