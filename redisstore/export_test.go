package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Masters lets tests speak to the servers behind a store, past everything that a store does for its callers.
func (s *Store) Masters(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	return s.nodes.each(ctx, f)
}

// UsedCommands are the names of the commands that an inspection looks for.
func UsedCommands() (names []string) {
	for _, command := range usedCommands {
		names = append(names, command[0])
	}
	return names
}
