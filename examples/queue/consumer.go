package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/idempotency"
)

const (
	stream = "orders" // whose messages have a field to: whom to write to
	group  = "mailers"
	batch  = 10 // messages at a time
)

// consumer sends a mail for each message of the stream.
type consumer struct {
	redis  *redis.Client
	tokens *idempotency.Tokens
	mails  *outbox
	name   string
	lease  time.Duration
	idle   time.Duration
	log    *slog.Logger
}

// run consumes until the context ends, or Redis cannot be asked.
func (c *consumer) run(ctx context.Context) error {
	err := c.redis.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") { // it is there
		return err
	}
	for ctx.Err() == nil {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// round handles the messages that a consumer was silent about for long, this one before its restart
// included, and then new ones.
func (c *consumer) round(ctx context.Context) error {
	for cursor := "0-0"; ; {
		args := &redis.XAutoClaimArgs{Stream: stream, Group: group, Consumer: c.name, MinIdle: c.idle, Start: cursor, Count: batch}
		again, next, err := c.redis.XAutoClaim(ctx, args).Result()
		if err == nil {
			err = c.handle(ctx, again)
		}
		if err != nil {
			return err
		}
		if cursor = next; cursor == "0-0" {
			break
		}
	}
	args := &redis.XReadGroupArgs{Group: group, Consumer: c.name, Streams: []string{stream, ">"}, Count: batch, Block: 100 * time.Millisecond}
	streams, err := c.redis.XReadGroup(ctx, args).Result()
	if errors.Is(err, redis.Nil) { // there is none
		return nil
	}
	if err != nil {
		return err
	}
	return c.handle(ctx, streams[0].Messages)
}

// handle sends a mail for each message, and acknowledges those that are done, now or before.
// Others are delivered again. A mail that is under way when the context ends is finished.
func (c *consumer) handle(ctx context.Context, messages []redis.XMessage) error {
	for _, message := range messages {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		to, _ := message.Values["to"].(string)
		key := idempotency.Key{Scope: stream, ID: message.ID}
		options := idempotency.ClaimOptions{Lease: c.lease, Route: stream, RequestID: message.ID}
		whole := context.WithoutCancel(ctx)
		_, err := c.tokens.Do(whole, key, options, func(ctx context.Context, attempt *idempotency.Attempt) ([]byte, error) {
			return nil, c.mails.send(ctx, attempt.Operation, to)
		})
		switch {
		case errors.Is(err, idempotency.ErrInProgress): // a consumer is slow, and not dead
			continue
		case err != nil:
			c.log.WarnContext(ctx, "not done, and stays in the queue", "message", message.ID, "error", err)
			continue
		}
		if err := c.redis.XAck(whole, stream, group, message.ID).Err(); err != nil {
			return err
		}
	}
	return nil
}
