package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The ways to add to a counter that the counters command compares with coatcheck's.
const (
	// Incr; with acknowledgement, INCR and WAIT in one pipeline.
	goRedisIncr     = "go-redis"
	goRedisAutoIncr = "go-redis-auto" // its automatic pipeline as it comes
)

// counting adds to counters, as one process would. It is safe for concurrent use.
type counting struct {
	incr  func(ctx context.Context, name string) (int64, error)
	key   func(name string) string // the key in Redis of the counter of that name
	total func() int64             // what calls have added, if nothing is in Redis; else nil
	close func() error
}

// mostConnections are go-redis's. More of them are slower here, since no more are answered at once.
const mostConnections = 256

// patience is how long a call may take after many others. Defaults are made for machines that are
// not as full as this one is made.
const patience = 30 * time.Second

// openCounting opens a client of a way for a load.
func openCounting(ctx context.Context, way string, place counterPlace, load countLoad) (counting, error) {
	switch way {
	case coatcheck:
		return openCounters(ctx, place)
	case handedOver:
		return openHandOver()
	case handedBare:
		return openBareHandOver(ctx, place, len(load.names) == 1)
	}
	client := redis.NewClient(&redis.Options{Addr: place.addr, PoolSize: min(load.callers, mostConnections), PoolTimeout: patience,
		ReadTimeout: patience})
	var incr redis.Cmdable = client
	var auto *redis.AutoPipeliner
	var err error
	switch way {
	case goRedisIncr:
	case goRedisAutoIncr:
		auto, err = client.AutoPipeline()
	default:
		err = usageError{fmt.Errorf("no way to count is called %q", way)}
	}
	if err != nil {
		return counting{}, errors.Join(err, client.Close())
	}
	if auto != nil {
		incr = auto
	}
	return counting{
		incr: func(ctx context.Context, name string) (int64, error) {
			if place.ack > 0 {
				return incrAndWait(ctx, client, way+name, place.ack)
			}
			return incr.Incr(ctx, way+name).Result()
		},
		key: func(name string) string { return way + name },
		close: func() error {
			if auto != nil {
				return errors.Join(auto.Close(), client.Close())
			}
			return client.Close()
		},
	}, nil
}

// incrAndWait is a value that replicas have confirmed, in one round trip.
func incrAndWait(ctx context.Context, client *redis.Client, key string, ack int) (int64, error) {
	pipe := client.Pipeline()
	value := pipe.Incr(ctx, key)
	acks := pipe.Do(ctx, "wait", ack, 1000)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	if got, _ := acks.Int(); got < ack {
		return 0, fmt.Errorf("%d replicas have confirmed", got)
	}
	return value.Val(), nil
}

func openCounters(ctx context.Context, place counterPlace) (counting, error) {
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: "redis://" + place.addr, Ack: place.ack, Timeout: patience})
	if err != nil {
		return counting{}, err
	}
	counters := counter.New(store, counter.Config{})
	return counting{
		incr:  counters.Incr,
		key:   func(name string) string { return onstore.Key(store, "counter", name) },
		close: func() error { return errors.Join(counters.Close(), store.Close()) },
	}, nil
}

// counterNames are the names of some counters.
func counterNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d-%04d", n, i)
	}
	return names
}

// sum adds up the counters of those names.
func (s *redisServer) sum(ctx context.Context, of counting, names []string) (sum int64, err error) {
	if of.total != nil {
		return of.total(), nil
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = of.key(name)
	}
	found, err := s.MGet(ctx, keys...).Result()
	if err != nil {
		return 0, err
	}
	for _, value := range found {
		text, _ := value.(string)
		n, err := strconv.ParseInt(text, 10, 64)
		if text != "" && err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// follow makes the server a replica of another, and returns when it has all that the other has.
func (s *redisServer) follow(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if err := s.ReplicaOf(ctx, host, port).Err(); err != nil {
		return err
	}
	for {
		fields, err := s.info(ctx, "replication")
		if err != nil {
			return err
		}
		if fields["master_link_status"] == "up" {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
