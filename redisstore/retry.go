package redisstore

import (
	"errors"
	"time"
)

// RetryAfter returns how long to wait before asking again can help, as the first error in err's
// tree says that has a method RetryAfter; 0 if none has, or it does not know. The errors of all
// domains that name a wait have that method, and so has an error of package client.
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
