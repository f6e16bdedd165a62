package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// redirects bounds how often one call follows a cluster's MOVED, ASK or TRYAGAIN. Redis ran nothing
// in each of these.
const redirects = 5

// Run runs a script. See package redisstore.
func (s *Engine) Run(ctx context.Context, script *scripts.Script, keys []string, args ...any) ([]string, error) {
	request := s.request(script, keys, args, nil)
	defer s.ended(request)
	return s.run(ctx, keys[0], request)
}

// request is a run of a script with all that it needs, which is used again: there are many of them.
type request struct {
	call  call
	job   job
	words []any // of the command
}

// request takes one that is used no more, or makes one.
func (s *Engine) request(script *scripts.Script, keys []string, args, more []any) *request {
	t, _ := s.batchers.requests.Get().(*request)
	if t == nil {
		t = &request{}
		t.job = job{call: &t.call, done: make(chan struct{}, 1)}
		t.call.job = &t.job
	}
	if s.trusting {
		script = script.Trusting()
	}
	c := &t.call
	c.script, c.ack, c.ackTimeout, c.deadline = script, s.ack, s.ackTimeout, time.Now().Add(s.timeout)
	if script.Reads {
		c.ack = 0
	}
	c.generation, c.bySource, c.asking, c.together = Generation{}, false, false, 0
	c.inGeneration, c.untold = false, false
	c.size, c.fault = 0, nil
	c.sent.Store(false)
	t.words = append(t.words[:0], "evalsha", c, len(keys))
	for i := range keys {
		t.words = append(t.words, &keys[i])
	}
	t.words = append(append(t.words, args...), more...)
	for _, word := range t.words {
		size, err := wordSize(word)
		c.size += size
		c.fault = cmp.Or(c.fault, err)
	}
	return t
}

// ended recycles a request, unless another goroutine still uses it.
func (s *Engine) ended(t *request) {
	if t.call.abandoned {
		return
	}
	clear(t.words)
	if t.call.bySource {
		t.call.text = nil // it is large
	}
	t.job.words, t.job.cmd, t.job.reply, t.job.err = nil, nil, nil, nil
	s.batchers.requests.Put(t)
}

func (s *Engine) run(ctx context.Context, key string, request *request) ([]string, error) {
	call := &request.call
	if len(s.observers) == 0 {
		return s.runUnseen(ctx, key, request)
	}
	began := time.Now()
	ctx = s.observers.started(ctx, call.script.Name)
	reply, err := s.runUnseen(ctx, key, request)
	ended := observe.Call{Op: call.script.Name, N: 1, Took: time.Since(began), Err: err}
	if err == nil {
		ended.Word = reply[0]
	}
	if !call.abandoned {
		ended.Together = call.together
	}
	s.observers.ended(ctx, ended)
	return reply, err
}

func (s *Engine) runUnseen(ctx context.Context, key string, request *request) ([]string, error) {
	call := &request.call
	if call.fault != nil {
		return nil, s.classify(ctx, call.script.Name, call.fault, false, false)
	}
	reply, err := s.route(ctx, key, call, request.words)
	if err == nil && len(reply) > 0 {
		return reply, nil
	}
	if err == nil {
		call.sent.Store(true)
		err = errors.New("a script answered an empty list")
	}
	s.suspect(ctx, err)
	if len(reply) == 0 {
		reply = nil
	}
	return reply, s.classify(ctx, call.script.Name, err, call.sent.Load(), call.script.Reads)
}

// suspect reads the topology again after an error that may come from a change of it.
func (s *Engine) suspect(ctx context.Context, err error) {
	if _, short := errors.AsType[*ShortfallError](err); !short {
		s.nodes.suspect(ctx, err)
	}
}

// call is one run of a script, or one INCRBY.
type call struct {
	script     *scripts.Script // nil for an INCRBY
	key        []byte          // of an INCRBY
	text       []byte          // what stands for the script in the command
	generation Generation      // in which it runs; what an INCRBY is meant for
	sum        int64           // what an INCRBY came to
	// about how many bytes its words take, and its reply where it is known to be large
	size         int
	fault        error // why its words cannot be written
	ack          int
	ackTimeout   time.Duration
	deadline     time.Time     // of the store; the caller's context may end sooner
	bySource     bool          // the server did not know the hash: send the text
	asking       bool          // the node was named by an ASK
	incr         *redis.IntCmd // of an INCRBY
	inGeneration bool          // its caller wants to know the generation in which it ran
	untold       bool          // the server did not say its incarnation
	marker       Marker        // of an INCRBY
	markerGone   bool          // the marker was not there after an INCRBY
	job          *job          // on which it goes with others
	of           *increment    // whose call it is; nil for a script
	abandoned    bool          // its caller has gone while others had it in their hands
	together     int           // calls on its round trip, for observers
	sent         atomic.Bool   // go-redis has begun to write the command to a connection
}

// MarshalBinary gives go-redis the script's hash or text, or the key of an INCRBY, when it writes
// the command to a connection, and so observes the moment from which the command may have left.
func (c *call) MarshalBinary() ([]byte, error) {
	c.sent.Store(true)
	if c.script == nil {
		return c.key, nil
	}
	text := c.script.SHA
	if c.bySource {
		text = c.script.Source
	}
	c.text = append(c.text[:0], text...)
	return c.text, nil
}

// route sends the command to the key's server and follows redirects, after which Redis has run
// nothing.
func (s *Engine) route(ctx context.Context, key string, call *call, words []any) ([]string, error) {
	node, err := s.nodes.of(ctx, key)
	if err != nil {
		return nil, err
	}
	var last error
	for range redirects {
		answer, err := s.send(ctx, node, call, words)
		target, kind := redisconn.Redirect(err)
		if kind == "" {
			return answer, err
		}
		last = err
		call.sent.Store(false)
		switch kind {
		case "NOSCRIPT":
			call.bySource = true
			words[0] = "eval"
		case "TRYAGAIN":
			if !pause(ctx, 20*time.Millisecond) {
				return nil, err
			}
		default:
			call.asking = kind == "ASK"
			s.nodes.suspect(ctx, err)
			if node, err = s.nodes.at(ctx, target); err != nil {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("no server took the script in %d attempts: %w", redirects, last)
}

// send writes the command to a server, with those of other callers where that saves a round trip.
func (s *Engine) send(ctx context.Context, node *redis.Client, call *call, words []any) ([]string, error) {
	generation := s.nodes.generation(node)
	call.generation = Generation{node, generation, generation.n.Load(), call.asking}
	switch {
	case call.size > largeCall:
		return s.sendLarge(ctx, node, call, words)
	case call.asking:
		return call.alone(ctx, node, words)
	}
	return s.batchers.to(destination{node, call.ack}, s).do(ctx, call, words)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// command is the go-redis command for the call's words.
//
//nolint:ireturn // a pipeline takes both kinds
func (c *call) command(ctx context.Context, words []any) redis.Cmder {
	if c.script == nil {
		return c.incr
	}
	// one that takes a reply of any kind, so that those after it are read
	return redis.NewCmd(ctx, words...)
}

// result is the answer to the command. That of an INCRBY is the call's sum.
func (c *call) result(run redis.Cmder) ([]string, error) {
	if incr, ok := run.(*redis.IntCmd); ok {
		var err error
		c.sum, err = incr.Result()
		return nil, err
	}
	answer, err := run.(*redis.Cmd).Result()
	if err != nil {
		return nil, err
	}
	return replyOf(answer)
}

// replyOf reads a list of strings, in which Lua's integers count as text.
func replyOf(answer any) ([]string, error) {
	list, is := answer.([]any)
	if !is {
		return nil, fmt.Errorf("a script answered %T and no list", answer)
	}
	reply := make([]string, len(list))
	for i, value := range list {
		switch value := value.(type) {
		case string:
			reply[i] = value
		case int64:
			reply[i] = strconv.FormatInt(value, 10)
		case nil: // Lua's false
		default:
			return nil, fmt.Errorf("value %d of a script's reply is %T and no text", i, value)
		}
	}
	return reply, nil
}

// alone writes the command, with ASKING before it and WAIT after it where they belong, on one
// connection.
func (c *call) alone(ctx context.Context, node *redis.Client, words []any) ([]string, error) {
	c.together = 1
	if c.of != nil && c.ack == 0 && !c.asking && c.marker.Key != "" && !c.asks() {
		return nil, c.of.alone(ctx, node)
	}
	ctx, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	run := c.command(ctx, words)
	if c.ack == 0 && !c.asking && c.marker.Key == "" && !c.asks() {
		_ = node.Process(ctx, run) // the command has its error
		return c.result(run)
	}
	pipe := node.Pipeline()
	asking := func() {
		if c.asking {
			pipe.Do(ctx, "asking")
		}
	}
	asking()
	_ = pipe.Process(ctx, run) // it only takes the command in
	var markerRead *redis.StringCmd
	if c.marker.Key != "" {
		asking()
		markerRead = pipe.Get(ctx, c.marker.Key)
	}
	var generation *redis.StringCmd
	if c.asks() {
		generation = asked(ctx)
		_ = pipe.Process(ctx, generation) // it only takes the command in
	}
	var wait *redis.Cmd
	if c.ack > 0 {
		wait = pipe.Do(ctx, "wait", c.ack, ackPatience(ctx, c.ackTimeout).Milliseconds())
	}
	_, execErr := pipe.Exec(ctx)
	reply, err := c.result(run)
	c.markerGone = markerRead != nil && !c.marker.in(markerRead)
	c.untold = generation != nil && c.generation.of.told(generation) != nil
	if err != nil || wait == nil {
		return reply, err
	}
	return reply, acknowledged(wait, c.ack, execErr)
}

// asks reports whether the call's round trip has to ask for the incarnation.
func (c *call) asks() bool { return c.inGeneration && c.generation.of != nil && c.generation.of.inBand }

// ackPatience is how long WAIT may take: less than the connection will wait for its answer, and at
// least a millisecond, since 0 means for ever.
func ackPatience(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)*3/4)
	}
	return max(most, time.Millisecond)
}

// acknowledged judges the answer to WAIT. An error of its own is only quoted, so that no caller
// takes it for an answer to the script, which has run.
func acknowledged(wait *redis.Cmd, want int, execErr error) error {
	got, err := wait.Int()
	switch cause := errors.Join(err, execErr); {
	case err != nil && fault.TimedOut(cause):
		return fmt.Errorf("written, but the acknowledgement failed: %s (%w)", cause.Error(), context.DeadlineExceeded)
	case err != nil:
		return errors.New("written, but the acknowledgement failed: " + cause.Error())
	}
	if got < want {
		return &ShortfallError{Want: want, Got: got}
	}
	return nil
}
