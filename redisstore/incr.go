package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What INCRBY can refuse, besides what every call can.
var (
	ErrNotAnInteger = Refusal("the value is not a signed 64-bit integer")
	ErrOverflow     = Refusal("the value would overflow 64 bits")
)

// IncrBy adds to the integer of a key in one command, waits for the store's acknowledgement, and returns the sum. It is for a key whose state a script has found in order
// during this life: where the life is over before it is sent, or the key is at another server, it adds nothing and answers [ErrOtherLife]; where the life ends before the reply is there
// the answer is the same, and what was added is a gap. It promises what [Store.Run] does.
func (s *Store) IncrBy(ctx context.Context, key string, by int64, life Life) (int64, error) {
	if !life.Current() {
		return 0, ErrOtherLife
	}
	call := &call{key: key, life: life, asking: life.asking, ack: s.ack, ackTimeout: s.ackTimeout, deadline: time.Now().Add(s.timeout)}
	_, err := s.send(ctx, life.node, call, []any{"incrby", call, by})
	if err == nil && life.Current() {
		return call.sum, nil
	}
	if _, elsewhere := redirect(err); err == nil || elsewhere != "" {
		s.nodes.suspect(ctx, err)
		return 0, ErrOtherLife
	}
	if refused := refusedSum(err); refused != nil {
		return 0, refused
	}
	s.suspect(ctx, err)
	return 0, classify(ctx, "incrby", err, call.sent.Load(), false)
}

// refusedSum tells of an error that is about the value.
func refusedSum(err error) error {
	var reply redis.Error
	switch {
	case !errors.As(err, &reply):
		return nil
	case strings.Contains(reply.Error(), "overflow"):
		return ErrOverflow
	case strings.Contains(reply.Error(), "not an integer"), wrongType.MatchString(reply.Error()):
		return ErrNotAnInteger
	}
	return nil
}
