package lock

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// notification wakes a waiter. Its turn may have come; or the lock was handed over to it; or, if
// the lock was given back in this process, it is the grant.
type notification struct {
	handed bool  // the lease of a local holder was handed on to it
	fence  int64 // 0 = it has to ask
	// the waiter's newest poll that Redis knew when it handed the lock over; 0 = none
	poll int64
	// by the Redis server, and, unless it was handed over, the local time before Redis was asked
	now, sent time.Time
}

// parseNotification parses 'token fence since poll'. A malformed one makes its waiter poll.
func parseNotification(message string) (token string, what notification) {
	token, rest, _ := strings.Cut(message, " ")
	words := strings.Fields(rest)
	if len(words) != 3 {
		return token, notification{}
	}
	fence, err1 := strconv.ParseInt(words[0], 10, 64)
	since, err2 := strconv.ParseInt(words[1], 10, 64)
	poll, err3 := strconv.ParseInt(words[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil || fence <= 0 || poll <= 0 {
		return token, notification{}
	}
	return token, notification{fence: fence, poll: poll, now: time.UnixMilli(since).UTC()}
}
