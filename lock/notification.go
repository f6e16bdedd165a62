package lock

import (
	"strings"
	"time"
)

// notification wakes a waiter. Its turn may have come; or the lock was handed over to it; or, if
// the lock was given back in this process, it is the grant.
type notification struct {
	fence int64 // 0 = it has to ask
	// the waiter's newest poll that Redis knew when it handed the lock over; 0 = none
	poll   int64
	window time.Duration // for how long Redis keeps the lock for it
	// by the Redis server, and, unless it was handed over, the local time before Redis was asked
	now, sent time.Time
}

// parseNotification parses 'token fence since poll window'. A malformed one makes its waiter poll.
func parseNotification(message string) (token string, what notification) {
	token, rest, _ := strings.Cut(message, " ")
	words := strings.Fields(rest)
	told, err := numbers(words)
	if err != nil || len(told) != 4 || told[0] <= 0 || told[2] <= 0 || told[3] <= 0 || told[3] > MaxTTL.Milliseconds() {
		return token, notification{}
	}
	return token, notification{fence: told[0], poll: told[2], window: time.Duration(told[3]) * time.Millisecond,
		now: time.UnixMilli(told[1]).UTC()}
}
