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

// request takes one that is used no more, or makes one. more follows the script's own arguments,
// the last of which are the facts of lib/incarnation if it uses them.
func (s *Engine) request(script *scripts.Script, keys []string, args, more []any) *request {
	t, _ := s.batchers.requests.Get().(*request)
	if t == nil {
		t = &request{}
		t.job = job{call: &t.call, done: make(chan struct{}, 1)}
		t.call.job = &t.job
	}
	c := &t.call
	c.script, c.ack, c.deadline = script, s.ack, time.Now().Add(s.timeout)
	text := script.Text()
	if text.Reads {
		c.ack = 0
	}
	c.node, c.bySource, c.asking, c.together = nil, false, false, 0
	c.facts, c.depends = noFacts, text.Incarnation && len(keys) >= text.MarkerKey
	c.size, c.fault = 0, nil
	c.sent.Store(false)
	t.words = append(t.words[:0], "evalsha", c, len(keys))
	for i := range keys {
		t.words = append(t.words, &keys[i])
	}
	t.words = append(t.words, args...)
	if text.Incarnation {
		t.words = append(t.words, &c.facts)
	}
	t.words = append(t.words, more...)
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

// RunAt is [Engine.Run], and returns the place at which the script ran, if it did.
func (s *Engine) RunAt(ctx context.Context, script *scripts.Script, keys []string, args ...any) ([]string, Place, error) {
	request := s.request(script, keys, args, nil)
	defer s.ended(request)
	reply, err := s.run(ctx, keys[0], request)
	if request.call.abandoned {
		return reply, Place{}, err
	}
	return reply, Place{request.call.node, request.call.asking}, err
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
	for range asks {
		if questionOf(call, reply) == "" {
			break
		}
		if err = s.settle(ctx, call.node, reply); err != nil {
			return nil, s.classify(ctx, call.script.Name, err, false, false)
		}
		call.sent.Store(false)
		reply, err = s.route(ctx, key, call, request.words)
	}
	if refused := refusalOf(call, reply); refused != nil {
		return nil, s.classify(ctx, call.script.Name, refused, false, false)
	}
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
	return reply, s.classify(ctx, call.script.Name, err, call.sent.Load(), call.script.Text().Reads)
}

// asks bounds how often one call asks what a script cannot see: each time is for an incarnation
// that has begun since.
const asks = 4

// suspect reads the topology again after an error that may come from a change of it.
func (s *Engine) suspect(ctx context.Context, err error) {
	if _, short := errors.AsType[*ShortfallError](err); !short {
		s.nodes.suspect(ctx, err)
	}
}

// call is one run of a script, or one INCRBY.
type call struct {
	script  *scripts.Script // nil for an INCRBY
	key     []byte          // of an INCRBY
	text    []byte          // what stands for the script in the command
	node    *redis.Client   // at which it runs
	facts   string          // the last argument of a script that asks for the incarnation
	depends bool            // it needs facts that are true
	sum     int64           // what an INCRBY came to
	// about how many bytes its words take, and its reply where it is known to be large
	size      int
	fault     error // why its words cannot be written
	ack       int
	deadline  time.Time     // of the store; the caller's context may end sooner
	bySource  bool          // the server did not know the hash: send the text
	asking    bool          // the node was named by an ASK
	incr      *redis.IntCmd // of an INCRBY
	marker    Marker        // of an INCRBY
	standing  standing      // of an INCRBY, by its marker
	id        string        // the incarnation in which an INCRBY ran
	job       *job          // on which it goes with others
	of        *increment    // whose call it is; nil for a script
	abandoned bool          // its caller has gone while others had it in their hands
	together  int           // calls on its round trip, for observers
	sent      atomic.Bool   // go-redis has begun to write the command to a connection
}

// MarshalBinary gives go-redis the script's hash or text, or the key of an INCRBY, when it writes
// the command to a connection, and so observes the moment from which the command may have left.
func (c *call) MarshalBinary() ([]byte, error) {
	c.sent.Store(true)
	if c.script == nil {
		return c.key, nil
	}
	text := c.script.Text().SHA
	if c.bySource {
		text = c.script.Text().Source
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
		if call.depends {
			if call.facts, err = s.factsFor(ctx, node); err != nil {
				return nil, err
			}
			if !call.script.Text().Reads {
				call.ack = s.ackAt(node)
			}
		}
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
	call.node = node
	if call.ack == AckAll {
		if err := s.know(ctx, node); err != nil {
			return nil, err
		}
	}
	switch {
	case call.size > largeCall:
		return s.sendLarge(ctx, node, call, words)
	case call.asking:
		return s.alone(ctx, node, call, words)
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

// alone writes the command, with ASKING before it, what a call depends on after it, and WAIT where
// it belongs, on one connection.
func (s *Engine) alone(ctx context.Context, node *redis.Client, c *call, words []any) ([]string, error) {
	c.together = 1
	if c.of != nil && c.ack == 0 && !c.asking {
		return nil, s.incrAlone(ctx, node, c.of)
	}
	ctx, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	run := c.command(ctx, words)
	if c.ack == 0 && !c.asking && c.marker.Key == "" {
		_ = node.Process(ctx, run) // the command has its error
		return c.result(run)
	}
	trip := s.trip(ctx, node.Pipeline(), c.node, c.ack)
	trip.add(c.asking, run)
	var read *redis.StringCmd
	if c.marker.Key != "" {
		read = redis.NewStringCmd(ctx, "get", c.marker.Key)
		trip.add(c.asking, read)
	}
	acked := trip.exec(c.marker.Key != "")
	reply, err := c.result(run)
	if read != nil {
		c.judge(read, &trip)
	}
	return reply, cmp.Or(err, acked)
}

// ackPatience is how long WAIT may take: less than the connection will wait for its answer, and at
// least a millisecond, since 0 means for ever.
func ackPatience(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)*3/4)
	}
	return max(most, time.Millisecond)
}
