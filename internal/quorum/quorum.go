// Package quorum asks several Redis servers that know nothing of each other. A majority decides.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Quorum is several Redis servers that know nothing of each other, each a store of its own, of
// which a majority decides. Any minority of them may be away, slow or without its data: what a
// majority has confirmed, another majority finds, since the two have a server in common. It is safe
// for concurrent use.
type Quorum struct {
	stores []*redisstore.Store

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// Open returns a quorum of the servers that the URLs name. The rest of the configuration holds for
// each. See package lock.
func Open(ctx context.Context, urls []string, config redisstore.Config) (*Quorum, error) {
	if err := checkQuorum(urls, config); err != nil {
		return nil, err
	}
	q := &Quorum{}
	for i, url := range urls {
		config.URL = url
		store, err := redisstore.OpenConfig(ctx, config)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("quorum: server %d: %w", i+1, err), q.Close())
		}
		q.stores = append(q.stores, store)
	}
	if err := q.checkApart(ctx, config.WithDefaults()); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// checkQuorum returns every fault of a quorum's URLs, without opening anything.
func checkQuorum(urls []string, config redisstore.Config) error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("quorum: "+format, args...))
		}
	}
	fault(len(urls) < 3 || len(urls)%2 == 0, "%d servers: an odd number, 3 or more", len(urls))
	fault(config.URL != "" || config.DataDir != "", "neither a URL nor a data directory for all servers: each has its own")
	names := make([][]string, len(urls))
	for i, url := range urls {
		found, err := redisconn.Parse(url)
		fault(err != nil, "server %d: %w", i+1, err)
		names[i] = found.Names()
	}
	if i, j := common(names); j > 0 {
		fault(true, "servers %d and %d are one", i+1, j+1)
	}
	return errors.Join(faults...)
}

// common finds the first two lists that share something; without, j is 0.
func common(lists [][]string) (i, j int) {
	owner := map[string]int{}
	for j, list := range lists {
		for _, name := range list {
			if i, known := owner[name]; known && i != j {
				return i, j
			}
			owner[name] = j
		}
	}
	return 0, 0
}

// checkApart asks the servers for their histories: one that goes by several names has one, and a
// replica has that of its master.
func (q *Quorum) checkApart(ctx context.Context, config redisstore.Config) error {
	histories := make([][]string, len(q.stores))
	var all sync.WaitGroup
	for i, store := range q.stores {
		all.Go(func() {
			var err error
			if histories[i], err = historiesOf(ctx, store); err != nil {
				config.Logger.Warn("quorum: a server is away, and may be the same as another", "server", store.Address(), "error", err)
			}
		})
	}
	all.Wait()
	if i, j := common(histories); j > 0 {
		return fmt.Errorf("quorum: servers %d and %d (%s, %s) are one, or copies of one", i+1, j+1, q.stores[i].Address(), q.stores[j].Address())
	}
	return nil
}

// historiesOf are the replication ids of a store's masters.
func historiesOf(ctx context.Context, store *redisstore.Store) (ids []string, err error) {
	if store.Mode() == redisstore.Embedded {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout())
	defer cancel()
	var mu sync.Mutex
	err = store.EachMaster(ctx, "info", func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx, "replication").Result()
		if id := redisconn.ParseInfo(text)["master_replid"]; id != "" {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, id)
		}
		return err
	})
	return ids, err
}

// Stores are the quorum's servers, in the order of their URLs. They are closed with the quorum.
func (q *Quorum) Stores() []*redisstore.Store { return slices.Clone(q.stores) }

// Majority is how many servers have to agree.
func (q *Quorum) Majority() int { return len(q.stores)/2 + 1 }

// Each starts a call for every server, each in a goroutine of its own, and does not wait for them:
// Close does. i is the server's place among Stores. A call's context has the values of ctx and not
// its end: it ends after patience. On a closed quorum it starts nothing, and reports that.
func (q *Quorum) Each(ctx context.Context, patience time.Duration, call func(ctx context.Context, i int)) (started bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	for i := range q.stores {
		q.calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			call(ctx, i)
		})
	}
	return true
}

// Close waits for the calls that are under way, which end with their patience, and closes the
// servers' stores. Closing again does nothing.
func (q *Quorum) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.calls.Wait()
	var faults []error
	for _, store := range q.stores {
		faults = append(faults, store.Close())
	}
	return errors.Join(faults...)
}
