package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipelined is how many calls of scripts are sent together.
const pipelined = 50

// cost is what a call took in Redis.
type cost struct {
	usec  float64 // of the script, in microseconds
	calls float64 // commands that it ran
	bytes float64 // that Redis uses afterwards more than at first, for each call of the act
}

// apart calls f with a connection of its own, whose buffers take no memory of the server any more
// when it returns.
func (s *redisServer) apart(ctx context.Context, f func(client *redis.Client) error) error {
	client := redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: time.Minute, PoolSize: 1})
	err := client.Ping(ctx).Err()
	if err == nil {
		err = f(client)
	}
	return errors.Join(err, client.Close(), s.Ping(ctx).Err())
}

// play sends calls, checks that the first word of each reply is the wanted one, and returns what a
// call cost but for the memory.
func (s *redisServer) play(ctx context.Context, calls []scriptCall, word string) (found cost, err error) {
	err = s.apart(ctx, func(client *redis.Client) error {
		if err := s.ConfigResetStat(ctx).Err(); err != nil {
			return err
		}
		if err := send(ctx, client, calls, word); err != nil {
			return err
		}
		found, err = s.costOfScripts(ctx, len(calls))
		return err
	})
	return found, err
}

// send sends calls in pipelines.
func send(ctx context.Context, client *redis.Client, calls []scriptCall, word string) error {
	for from := 0; from < len(calls); from += pipelined {
		pipe := client.Pipeline()
		for _, call := range calls[from:min(from+pipelined, len(calls))] {
			pipe.Do(ctx, call...)
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			return err
		}
		for _, reply := range replies {
			if got := firstWord(reply); word != "" && got != word {
				return fmt.Errorf("a script replied %q, want %q: %v", got, word, reply)
			}
		}
	}
	return nil
}

// listen reads what is published on channels, as a process of waiters does, until end is called.
func (s *redisServer) listen(ctx context.Context, channels []string) (end func()) {
	listener, done := s.Subscribe(ctx, channels...), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := listener.Receive(ctx); err != nil {
				return
			}
		}
	}()
	return func() {
		_ = listener.Close()
		<-done
	}
}

func firstWord(reply redis.Cmder) string {
	words, _ := reply.(*redis.Cmd).Slice()
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprint(words[0])
}

var commandStat = regexp.MustCompile(`^calls=(\d+),usec=\d+,usec_per_call=([0-9.]+)`)

// costOfScripts reads what the scripts cost that ran since the statistics were reset.
func (s *redisServer) costOfScripts(ctx context.Context, want int) (cost, error) {
	stats, err := s.info(ctx, "commandstats")
	if err != nil {
		return cost{}, err
	}
	var found cost
	var ran, inner int
	for name, text := range stats {
		stat := commandStat.FindStringSubmatch(text)
		if stat == nil || strings.HasPrefix(name, "cmdstat_config") {
			continue
		}
		calls, err := strconv.Atoi(stat[1])
		if err != nil {
			return cost{}, err
		}
		if name != "cmdstat_evalsha" {
			inner += calls
			continue
		}
		ran = calls
		if found.usec, err = strconv.ParseFloat(stat[2], 64); err != nil {
			return cost{}, err
		}
	}
	if ran != want {
		return cost{}, fmt.Errorf("INFO commandstats counts %d scripts, want %d", ran, want)
	}
	found.calls = float64(inner) / float64(ran)
	return found, nil
}

// dump is the content of a Redis.
type dump []dumpedKey

type dumpedKey struct {
	key, value string
	ttl        time.Duration // 0 = it has no end
}

// dump reads all keys.
func (s *redisServer) dump(ctx context.Context) (dump, error) {
	keys, err := s.Keys(ctx, "*").Result()
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	pipe := s.Pipeline()
	values, ends := make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	for i, key := range keys {
		values[i], ends[i] = pipe.Dump(ctx, key), pipe.PTTL(ctx, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	all := make(dump, len(keys))
	for i, key := range keys {
		all[i] = dumpedKey{key, values[i].Val(), max(ends[i].Val(), 0)}
	}
	return all, nil
}

// restore replaces the content of a server.
func (s *redisServer) restore(ctx context.Context, all dump) error {
	return s.apart(ctx, func(client *redis.Client) error {
		pipe := client.Pipeline()
		pipe.FlushAll(ctx)
		for _, key := range all {
			pipe.Restore(ctx, key.key, key.ttl, key.value)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}
