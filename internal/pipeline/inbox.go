package pipeline

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Inbox receives what is published on one channel. It holds one connection, which is made again
// after it is lost. Close it when it is no longer needed.
type Inbox struct {
	pubsub *redis.PubSub
	notes  <-chan any
}

// Subscribe listens on a channel of the store, a name that Key made. When it returns, every message
// that is published from now on arrives, unless the connection is lost; on a cluster a message that
// any node gets arrives. The error is an [*Error] of class [ErrUnavailable].
func (s *Engine) Subscribe(ctx context.Context, channel string) (*Inbox, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pubsub := s.nodes.Subscribe(ctx)
	err := pubsub.Subscribe(ctx, channel)
	if err == nil {
		_, err = pubsub.Receive(ctx)
	}
	if err != nil {
		_ = pubsub.Close() // it has received nothing
		return nil, s.classify(ctx, "subscribe", err, false, true)
	}
	return &Inbox{pubsub, pubsub.ChannelWithSubscriptions()}, nil
}

// Next waits for the next message. missed reports that the connection was lost and made again:
// messages published in between did not arrive, and there is no message. After Close, and when the
// context ends, it returns an error.
func (i *Inbox) Next(ctx context.Context) (message string, missed bool, err error) {
	select {
	case <-ctx.Done():
		return "", false, ctx.Err()
	case note, open := <-i.notes:
		if !open {
			return "", false, fmt.Errorf("subscription: %w", redis.ErrClosed)
		}
		if published, ok := note.(*redis.Message); ok {
			return published.Payload, false, nil
		}
		return "", true, nil
	}
}

// Close ends the subscription and its connection.
func (i *Inbox) Close() error { return i.pubsub.Close() }
