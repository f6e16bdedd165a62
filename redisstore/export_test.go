package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Masters lets tests speak to the servers behind a store, past everything that a store does for its
// callers.
func (s *Store) Masters(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	return s.nodes.each(ctx, f)
}

// NeededCommands are the names of the commands that a store needs of every Redis.
func NeededCommands() (names []string) {
	for _, command := range neededCommands {
		names = append(names, command.name())
	}
	return names
}
