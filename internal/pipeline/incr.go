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

// IncrBy adds to the integer of a key in one command, waits for the store's acknowledgement, and
// returns the sum. It is for a key whose state a script has found in order at this place and under
// this marker. Where the key is at another server it adds nothing and answers
// [ErrOtherIncarnation]; where the marker has another era, the answer is the same, and what was
// added is a gap. An [*UnconfirmedError] has a sum that a script has to judge. It promises what
// [Engine.Run] does.
func (s *Engine) IncrBy(ctx context.Context, key string, by int64, place Place, marker Marker) (int64, error) {
	if !place.Known() {
		return 0, ErrOtherIncarnation
	}
	began := time.Now()
	if len(s.observers) == 0 {
		sum, _, err := s.incrByUnseen(ctx, key, by, place, marker, began)
		return sum, err
	}
	ctx = s.observers.started(ctx, observe.OpIncrBy)
	sum, together, err := s.incrByUnseen(ctx, key, by, place, marker, began)
	s.observers.ended(ctx, observe.Call{Op: observe.OpIncrBy, N: 1, Took: time.Since(began), Err: err, Together: together})
	return sum, err
}

func (s *Engine) incrByUnseen(
	ctx context.Context, key string, by int64, place Place, marker Marker, began time.Time,
) (sum int64, together int, err error) {
	in := s.increment()
	in.start(s, key, by, place, marker, began)
	_, err = s.send(ctx, place.node, &in.call, in.words[:])
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
	switch {
	case err == nil && in.call.standing == inOrder:
		return in.call.sum, nil
	case err == nil && in.call.standing == unconfirmed:
		return 0, &UnconfirmedError{Sum: in.call.sum, ID: in.call.id}
	}
	return 0, s.notAdded(ctx, err, in.call.sent.Load())
}

// notAdded is the answer to a caller without a sum. Without an error its addition was in vain.
func (s *Engine) notAdded(ctx context.Context, err error, sent bool) error {
	if _, elsewhere := redisconn.Redirect(err); err == nil || elsewhere != "" {
		s.nodes.suspect(ctx, err)
		return ErrOtherIncarnation
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
	call  call
	job   job
	by    int64
	words [3]any

	limit  limited // what follows is of one that goes by itself
	node   *redis.Client
	pipe   redis.Pipeliner  // of the node
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

// incrAlone sends an INCRBY by itself, with what it depends on after it, and with as little as
// go-redis needs for that.
func (s *Engine) incrAlone(ctx context.Context, node *redis.Client, in *increment) error {
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
	trip := s.trip(&in.limit, in.pipe, node, 0)
	trip.add(false, c.incr)
	trip.add(false, in.read)
	_ = trip.exec(true) // it asks for no acknowledgement
	in.limit.Context = nil
	_, err := c.result(c.incr)
	c.judge(in.read, &trip)
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

func (in *increment) start(s *Engine, key string, by int64, place Place, marker Marker, now time.Time) {
	c := &in.call
	c.key, in.by, c.node, c.asking, c.marker = append(c.key[:0], key...), by, place.node, place.asking, marker
	c.ack, c.deadline = s.ackAt(place.node), now.Add(s.timeout)
	c.sum, c.standing, c.id, c.together = 0, gone, "", 0
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
