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

// Mark is a word that has to be the second in the text of a key beside the one that is added to, in the same slot, when an INCRBY has run: FLUSHALL takes it away, and begins
// no life. What can not be read because a cluster is moving the slot counts as there.
type Mark struct{ Key, Word string }

func (m Mark) in(read *redis.StringCmd) bool {
	text, err := read.Result()
	if _, elsewhere := redirect(err); elsewhere != "" {
		return true
	}
	_, text, _ = strings.Cut(text, " ")
	word, _, _ := strings.Cut(text, " ")
	return err == nil && word == m.Word
}

// IncrBy adds to the integer of a key in one command, waits for the store's acknowledgement, and returns the sum. It is for a key whose state a script has found in order
// during this life and under this mark: where the life is over before it is sent, or the key is at another server, it adds nothing and answers [ErrOtherLife]; where the life
// ends before the reply is there, or the mark is gone, the answer is the same, and what was added is a gap. It promises what [Store.Run] does.
func (s *Store) IncrBy(ctx context.Context, key string, by int64, life Life, mark Mark) (int64, error) {
	if !life.Current() {
		return 0, ErrOtherLife
	}
	in, _ := s.combiners.increments.Get().(*increment)
	if in == nil {
		in = newIncrement()
	}
	in.start(s, key, by, life)
	in.call.mark = mark
	_, err := s.send(ctx, life.node, &in.call, in.words[:])
	sent, sum, unmarked := in.call.sent.Load(), int64(0), false
	if !in.call.abandoned {
		sum, unmarked = in.call.sum, in.call.unmarked
		s.combiners.increments.Put(in)
	}
	if err == nil && life.Current() && !unmarked {
		return sum, nil
	}
	if _, elsewhere := redirect(err); err == nil || elsewhere != "" {
		s.nodes.suspect(ctx, err)
		return 0, ErrOtherLife
	}
	if refused := refusedSum(err); refused != nil {
		return 0, refused
	}
	s.suspect(ctx, err)
	return 0, classify(ctx, "incrby", err, sent, false)
}

// increment is an INCRBY with all that it needs, which is used again: there are many of them, and they are small.
type increment struct {
	call  call
	job   job
	by    int64
	words [3]any
}

func newIncrement() *increment {
	in := &increment{}
	in.words = [3]any{"incrby", &in.call, &in.by}
	in.call.incr = redis.NewIntCmd(context.Background(), in.words[:]...)
	in.job = job{call: &in.call, words: in.words[:], landed: make(chan struct{}, 1)}
	in.call.job = &in.job
	return in
}

func (in *increment) start(s *Store, key string, by int64, life Life) {
	c := &in.call
	c.key, in.by, c.life, c.asking = key, by, life, life.asking
	c.ack, c.ackTimeout, c.deadline = s.ack, s.ackTimeout, time.Now().Add(s.timeout)
	c.sum, c.unmarked = 0, false
	c.sent.Store(false)
	c.incr.SetVal(0)
	c.incr.SetErr(nil)
	in.job.reply, in.job.err = nil, nil
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
