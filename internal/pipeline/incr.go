package pipeline

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// The refusals of INCRBY, besides those of every call.
var (
	ErrNotAnInteger = fault.Refusal("the value is not a signed 64-bit integer")
	ErrOverflow     = fault.Refusal("the value would overflow 64 bits")
)

// Marker is a word that has to be the second in the text of a key beside the one that is added to,
// in the same slot, when an INCRBY has run: FLUSHALL takes it away, and begins no generation. What
// cannot be read because a cluster is moving the slot counts as there.
type Marker struct{ Key, Word string }

func (m Marker) in(read *redis.StringCmd) bool {
	text, err := read.Result()
	if _, elsewhere := redisconn.Redirect(err); elsewhere != "" {
		return true
	}
	_, text, _ = strings.Cut(text, " ")
	word, _, _ := strings.Cut(text, " ")
	return err == nil && word == m.Word
}

// IncrBy adds to the integer of a key in one command, waits for the store's acknowledgement, and
// returns the sum. It is for a key whose state a script has found in order during this generation
// and under this marker: where the generation is over before it is sent, or the key is at another
// server, it adds nothing and answers [ErrOtherGeneration]; where the generation ends before the
// reply is there, or the marker is gone, the answer is the same, and what was added is a gap. It
// promises what [Engine.Run] does.
func (s *Engine) IncrBy(ctx context.Context, key string, by int64, generation Generation, marker Marker) (int64, error) {
	if !generation.Current() {
		return 0, ErrOtherGeneration
	}
	began := time.Now()
	if len(s.observers) == 0 {
		sum, _, err := s.incrByUnseen(ctx, key, by, generation, marker, began)
		return sum, err
	}
	ctx = s.observers.started(ctx, observe.OpIncrBy)
	sum, together, err := s.incrByUnseen(ctx, key, by, generation, marker, began)
	s.observers.ended(ctx, observe.Call{Op: observe.OpIncrBy, N: 1, Took: time.Since(began), Err: err, Together: together})
	return sum, err
}

func (s *Engine) incrByUnseen(ctx context.Context, key string, by int64, generation Generation, marker Marker, began time.Time) (sum int64, together int, err error) {
	in := s.increment()
	in.start(s, key, by, generation, began)
	in.call.marker = marker
	_, err = s.send(ctx, generation.node, &in.call, in.words[:])
	if in.call.abandoned { // others have it in their hands
		return 0, 0, s.notAdded(ctx, err, in.call.sent.Load())
	}
	sum, err = in.verdict(ctx, s, err)
	together = in.call.together
	s.batchers.increments.Put(in)
	return sum, together, err
}

// verdict is the answer to a call that ended with this error.
func (in *increment) verdict(ctx context.Context, s *Engine, err error) (int64, error) {
	if err == nil && in.generation.Current() && !in.call.markerGone && !in.call.untold {
		return in.call.sum, nil
	}
	return 0, s.notAdded(ctx, err, in.call.sent.Load())
}

// notAdded is the answer to a caller without a sum. Without an error its addition was in vain.
func (s *Engine) notAdded(ctx context.Context, err error, sent bool) error {
	if _, elsewhere := redisconn.Redirect(err); err == nil || elsewhere != "" {
		s.nodes.suspect(ctx, err)
		return ErrOtherGeneration
	}
	if refused := refusedSum(err); refused != nil {
		return refused
	}
	s.suspect(ctx, err)
	return s.classify(ctx, "incrby", err, sent, false)
}

// increment is an INCRBY with all that it needs, which is used again: there are many of them, and
// they are small.
type increment struct {
	call       call
	job        job
	generation Generation // that it is meant for
	by         int64
	words      [3]any

	limit  limited // what follows is of one that goes by itself
	node   *redis.Client
	pipe   redis.Pipeliner // of the node
	cmds   [2]redis.Cmder
	read   *redis.StringCmd // of the marker
	marker string           // its key
}

// limited is a context that also has the deadline of the store, for one call to a connection that
// no other call waits for: go-redis gives it to the connection, and needs no timer for it. Its Done
// does not end at that deadline.
type limited struct {
	context.Context

	deadline time.Time
}

// Deadline is the sooner one of both.
func (l *limited) Deadline() (time.Time, bool) {
	if sooner, ok := l.Context.Deadline(); ok && sooner.Before(l.deadline) {
		return sooner, true
	}
	return l.deadline, true
}

// alone sends the INCRBY by itself and reads its marker after it, with as little as go-redis needs
// for that.
func (in *increment) alone(ctx context.Context, node *redis.Client) error {
	c := &in.call
	in.limit = limited{ctx, c.deadline}
	if in.node != node {
		in.node, in.pipe = node, node.Pipeline()
	}
	if in.marker != c.marker.Key {
		in.marker, in.read = c.marker.Key, redis.NewStringCmd(context.Background(), "get", c.marker.Key)
	}
	in.read.SetVal("")
	in.read.SetErr(nil)
	in.cmds = [2]redis.Cmder{c.incr, in.read}
	_ = in.pipe.BatchProcess(&in.limit, in.cmds[:]...) // it only takes the commands in
	_, _ = in.pipe.Exec(&in.limit)                     // each command has its own error
	in.limit.Context = nil
	_, err := c.result(c.incr)
	c.markerGone = !c.marker.in(in.read)
	return err
}

// increment takes one that is used no more, or makes one.
func (s *Engine) increment() *increment {
	if in, _ := s.batchers.increments.Get().(*increment); in != nil {
		return in
	}
	in := &increment{}
	in.words = [3]any{"incrby", &in.call, &in.by}
	in.call.incr = redis.NewIntCmd(context.Background(), in.words[:]...)
	in.job = job{call: &in.call, done: make(chan struct{}, 1)}
	in.call.job, in.call.of = &in.job, in
	return in
}

func (in *increment) start(s *Engine, key string, by int64, generation Generation, now time.Time) {
	c := &in.call
	in.generation = generation
	c.key, in.by, c.generation, c.asking = append(c.key[:0], key...), by, generation, generation.asking
	c.ack, c.ackTimeout, c.deadline = s.ack, s.ackTimeout, now.Add(s.timeout)
	c.sum, c.markerGone, c.together = 0, false, 0
	c.inGeneration, c.untold = true, false
	c.sent.Store(false)
	c.incr.SetVal(0)
	c.incr.SetErr(nil)
	in.job.reply, in.job.err = nil, nil
}

// refusedSum reports whether an error is about the value.
func refusedSum(err error) error {
	var reply redis.Error
	switch {
	case !errors.As(err, &reply):
		return nil
	case strings.Contains(reply.Error(), "overflow"):
		return ErrOverflow
	case strings.Contains(reply.Error(), "not an integer"), fault.IsWrongType(reply):
		return ErrNotAnInteger
	}
	return nil
}
