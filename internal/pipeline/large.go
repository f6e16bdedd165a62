package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/scripts"
)

// A large call shares no round trip, so that no other call waits for it. A few of them are under
// way at a time, and each has time for its size.
const (
	largeCall   = 16 << 10 // bytes of arguments, or of a reply, from which a call is large
	largeAtOnce = 8
	largeRate   = 4 << 20          // bytes a second that a connection is expected to carry at least
	largeTurn   = 10 * time.Second // how long a call waits for its turn, at most
)

// RunLarge is [Engine.Run] for a script whose reply takes about so many bytes. If that is much, the
// script goes out by itself, one of a few at a time, and has a second more for each 4 MiB; it waits
// up to ten seconds for its turn before that. Run does the same where the arguments are large.
func (s *Engine) RunLarge(ctx context.Context, size int, script *scripts.Script, keys []string, args ...any) ([]string, error) {
	request := s.request(script, keys, args, nil)
	request.call.size += size
	defer s.ended(request)
	return s.run(ctx, keys[0], request)
}

// sendLarge sends a large call when it has its turn.
func (s *Engine) sendLarge(ctx context.Context, node *redis.Client, call *call, words []any) ([]string, error) {
	select {
	case s.batchers.large <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(largeTurn):
		return nil, context.DeadlineExceeded
	}
	defer func() { <-s.batchers.large }()
	limit := s.timeout + time.Duration(call.size)*time.Second/largeRate
	began := time.Now()
	call.deadline = began.Add(limit)
	reply, err := s.alone(ctx, node.WithTimeout(limit), call, words)
	s.observers.batchSent(1, time.Since(began))
	return reply, err
}

// wordSize is about how many bytes a word of a command takes. The error is for one that go-redis
// may not be able to write: it would fail all calls of a round trip.
func wordSize(word any) (int, error) {
	switch word := word.(type) {
	case string:
		return len(word), nil
	case *string:
		return len(*word), nil
	case []byte:
		return len(word), nil
	case int, int64, *int, *int64, *call:
		return numberSize, nil
	}
	return 0, fmt.Errorf("an argument of type %T: want a string, bytes or an integer", word)
}

// numberSize is how many bytes an integer takes at most.
const numberSize = 20
