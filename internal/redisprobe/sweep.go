package redisprobe

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

var sweepForm = lazyregexp.New(`^[A-Za-z0-9._:~@-]{3,200}$`)

// sweepPage is how many keys a SCAN looks at in one step.
const sweepPage = 1000

// Sweep removes every record of every kind whose name begins with a text of at least three
// characters, and the names themselves from the lists of the kinds that are named, such as workers;
// it returns how many keys there were. It is for the remains of a test or a measurement: a process
// that still uses such a name loses it without notice. It looks at every key of every master, in
// steps, and does not hold others up. The error is a [*redisstore.Error]; asked again it goes on.
func Sweep(ctx context.Context, store *redisstore.Store, beginning string, kinds ...string) (removed int, err error) {
	if !sweepForm().MatchString(beginning) {
		return 0, &redisstore.Error{Op: "sweep", Class: redisstore.ErrRefused,
			Cause: errors.New("a beginning of names has three characters or more, of those that names have")}
	}
	var mu sync.Mutex
	err = store.EachMaster(ctx, "sweep", func(ctx context.Context, node *redis.Client) error {
		n, err := sweepNode(ctx, node, store.Prefix(), beginning)
		mu.Lock()
		removed += n
		mu.Unlock()
		for _, kind := range kinds {
			if err == nil {
				err = forget(ctx, node, store.Key(kind, "names"), beginning)
			}
		}
		return err
	})
	return removed, err
}

func sweepNode(ctx context.Context, node *redis.Client, prefix, beginning string) (removed int, err error) {
	for cursor := uint64(0); ; {
		var keys []string
		if keys, cursor, err = node.Scan(ctx, cursor, prefix+"*:{"+beginning+"*", sweepPage).Result(); err != nil {
			return removed, err
		}
		pipe := node.Pipeline()
		for _, key := range keys { // one at a time, since a cluster takes no keys of several slots
			if kind, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "{"); strings.Count(kind, ":") == 1 {
				pipe.Del(ctx, key)
			}
		}
		answers, err := pipe.Exec(ctx)
		if err != nil {
			return removed, err
		}
		removed += len(answers)
		if cursor == 0 {
			return removed, nil
		}
	}
}

// forget takes names off a list of names, if this is the master that has it.
func forget(ctx context.Context, node *redis.Client, list, beginning string) error {
	err := node.ZRemRangeByLex(ctx, list, "["+beginning, "["+beginning+"\xff").Err()
	if _, kind := redisconn.Redirect(err); kind == "MOVED" {
		return nil
	}
	return err
}
