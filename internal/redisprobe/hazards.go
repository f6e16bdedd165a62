package redisprobe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Hazard is a setting of a Redis under which it can lose what it has confirmed.
type Hazard struct {
	Server string // host:port
	Risk   string // what can happen
	Fix    string // the line of redis.conf that ends it
}

// String reports the risk, its server, and the remedy.
func (h Hazard) String() string { return fmt.Sprintf("%s: %s (%s)", h.Server, h.Risk, h.Fix) }

// Hazards asks every master for the settings under which it loses state by itself: eviction, and no
// or rare writing to disk. The embedded store has none. A server that hides its settings has none
// that are known. The error is that of [onstore.EachMaster].
func Hazards(ctx context.Context, store *redisstore.Store) ([]Hazard, error) {
	all, err := ofMasters(ctx, store, "settings", func(ctx context.Context, node *redis.Client) ([]Hazard, error) {
		return hazards(ctx, node, onstore.Restarts(store))
	})
	slices.SortFunc(all, func(a, b Hazard) int { return strings.Compare(a.String(), b.String()) })
	return all, err
}

// ofMasters asks every master, and puts together what they have. The embedded store has nothing.
func ofMasters[T any](ctx context.Context, store *redisstore.Store, op string,
	ask func(context.Context, *redis.Client) ([]T, error)) ([]T, error) {
	if store.Mode() == redisstore.ModeEmbedded {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, onstore.Timeout(store))
	defer cancel()
	var mu sync.Mutex
	var all []T
	err := onstore.EachMaster(ctx, store, op, func(ctx context.Context, node *redis.Client) error {
		found, err := ask(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// onDisk is what keeps state over a restart, and shows it to be whole.
const onDisk = "appendonly yes, and without replicas appendfsync always"

func hazards(ctx context.Context, node *redis.Client, restarts redisstore.Restarts) ([]Hazard, error) {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	info := redisconn.ParseInfo(text)
	var found []Hazard
	note := func(is bool, risk, fix string) {
		if is {
			found = append(found, Hazard{node.Options().Addr, risk, fix})
		}
	}
	policy := info["maxmemory_policy"]
	note(info["maxmemory"] != "0" && policy != "" && policy != "noeviction",
		"evicts keys when its memory is full ("+policy+"): tokens and leases can vanish", "maxmemory-policy noeviction")
	if info["aof_enabled"] == "0" {
		save, err := node.ConfigGet(ctx, "save").Result()
		rule, told := save["save"]
		note(err == nil && told && rule == "", "keeps nothing on disk: a restart loses all state", onDisk)
		note(err == nil && rule != "", "writes to disk from time to time only: a restart loses what came since", onDisk)
	} else if restarts == redisstore.RestartsTrust {
		fsync, err := node.ConfigGet(ctx, "appendfsync").Result()
		rule := fsync["appendfsync"]
		note(err == nil && rule != "" && rule != "always",
			"restarts are trusted, and a machine that loses power loses what was not on its disk yet (appendfsync "+rule+
				"): ids and values can be handed out twice", "appendfsync always")
	}
	return found, nil
}
