// Command peers takes locks as chaos/locks does, by one of the libraries that others use, so that
// the same faults and the same check tell what its holders believe. It is a module of its own, so
// that coatcheck's own needs none of them.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/chaos/internal/locking"
)

// peers open a way to lock at a Redis.
var peers = map[string]func(ctx context.Context, url string) (locking.Locker, error){
	"redislock":   openRedislock,
	"redsync":     openRedsync,
	"rueidislock": openRueidislock,
}

func main() {
	if len(os.Args) != 2 || peers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: peers redislock|redsync|rueidislock")
		os.Exit(2)
	}
	open := func(ctx context.Context, task chaostest.Task) (locking.Locker, error) {
		return peers[os.Args[1]](ctx, task.Store)
	}
	if err := locking.Play(true, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
