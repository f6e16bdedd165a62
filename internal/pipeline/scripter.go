package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/scripts"
)

// Chained is a script of ours that runs after a library's own, in one call and as one decision. See
// [Engine.Scripter]. It is for one call.
type Chained struct {
	Script *scripts.Script
	Keys   []string // the library's come first, in its order
	Args   []any
	// the outcome that the library is told of as success; any other is a nil reply to it
	Done  string
	Reply []string // what the script answered; nil if it did not
}

type chainedKey struct{}

// With returns a context that carries the script to the [Scripter]. It has a deadline, if only one
// that no call of a store comes to, so that a library which sees to it that there is one need not
// set a timer.
func (b *Chained) With(ctx context.Context) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(2 * maxTimeout)
	}
	return chainedContext{ctx, b, deadline}
}

// maxTimeout is the longest that a store's timeout can be.
const maxTimeout = time.Minute

type chainedContext struct {
	context.Context

	chained  *Chained
	deadline time.Time
}

func (c chainedContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c chainedContext) Value(key any) any {
	if key == (chainedKey{}) {
		return c.chained
	}
	return c.Context.Value(key)
}

// Scripter is the client for a library that runs scripts of its own through go-redis's interface of
// that name. Each of its scripts runs followed by the script that the call's context carries
// ([Chained.With]), in one script, unless that script decides before. So both see one state, one
// reply says what came of it, and everything that [Engine.Run] promises holds for both: the
// acknowledgement, the classes of errors, no repeats. It is safe for concurrent use.
//
// A library's text becomes known when it falls back to EVAL, as go-redis's Script.Run does for a
// hash that a server does not know.
type Scripter struct {
	store *Engine
	known sync.Map // the library's texts by their hash
	built sync.Map // *scripts.Script by join
}

// join is the key of a combined script.
type join struct {
	sha             string
	script          *scripts.Script
	keys, own, args int
}

// Scripter returns a client of the store's for a library.
func (s *Engine) Scripter() *Scripter { return &Scripter{store: s} }

var errNotChained = errors.New("a library's script runs only with one of ours after it")

// notKnown is the answer of a server that has not seen a script.
type notKnown struct{}

func (notKnown) Error() string { return "NOSCRIPT the library's text is not known yet" }

// RedisError marks it as a server's answer.
func (notKnown) RedisError() {}

// EvalSha implements redis.Scripter.
func (s *Scripter) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	text, known := s.known.Load(sha)
	if !known {
		cmd.SetErr(notKnown{})
		return cmd
	}
	switch done, err := s.run(ctx, sha, text.(string), keys, args); {
	case err != nil:
		cmd.SetErr(err)
	case !done:
		cmd.SetErr(redis.Nil)
	default:
		cmd.SetVal("OK")
	}
	return cmd
}

// Eval implements redis.Scripter.
func (s *Scripter) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	sha := redis.NewScript(text).Hash()
	s.known.Store(sha, text)
	return s.EvalSha(ctx, sha, keys, args...)
}

// EvalRO implements redis.Scripter, as Eval does.
func (s *Scripter) EvalRO(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return s.Eval(ctx, text, keys, args...)
}

// EvalShaRO implements redis.Scripter, as EvalSha does.
func (s *Scripter) EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return s.EvalSha(ctx, sha, keys, args...)
}

// ScriptExists implements redis.Scripter: it is about the texts that the Scripter knows.
func (s *Scripter) ScriptExists(ctx context.Context, hashes ...string) *redis.BoolSliceCmd {
	cmd := redis.NewBoolSliceCmd(ctx)
	known := make([]bool, len(hashes))
	for i, sha := range hashes {
		_, known[i] = s.known.Load(sha)
	}
	cmd.SetVal(known)
	return cmd
}

// ScriptLoad implements redis.Scripter: the Scripter remembers the text.
func (s *Scripter) ScriptLoad(ctx context.Context, text string) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx)
	sha := redis.NewScript(text).Hash()
	s.known.Store(sha, text)
	cmd.SetVal(sha)
	return cmd
}

// run runs the library's text chained with the context's script, and reports whether that has come
// to its Done.
func (s *Scripter) run(ctx context.Context, sha, text string, keys []string, args []any) (bool, error) {
	chained, _ := ctx.Value(chainedKey{}).(*Chained)
	if chained == nil {
		return false, s.store.classify(ctx, "library's script", errNotChained, false, true)
	}
	if len(keys) > len(chained.Keys) || !slices.Equal(keys, chained.Keys[:len(keys)]) {
		cause := fmt.Errorf("the library's keys are not the first of %s", chained.Script.Name)
		return false, s.store.classify(ctx, chained.Script.Name, cause, false, true)
	}
	own := len(chained.Args)
	if chained.Script.Text().Incarnation {
		own++ // the facts
	}
	both := s.both(join{sha, chained.Script, len(keys), own, len(args)}, text)
	request := s.store.request(both, chained.Keys, chained.Args, args)
	defer s.store.ended(request)
	reply, err := s.store.run(ctx, chained.Keys[0], request)
	if err != nil {
		return false, err
	}
	chained.Reply = reply
	return reply[0] == chained.Done, nil
}

func (s *Scripter) both(of join, text string) *scripts.Script {
	if built, ok := s.built.Load(of); ok {
		return built.(*scripts.Script)
	}
	built, _ := s.built.LoadOrStore(of, of.script.Following(text, of.keys, of.own, of.args))
	return built.(*scripts.Script)
}
