package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (p *program) counterCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "counter", Short: "Look at counters, set and remove them", Args: noArgs,
		Long: "Look at counters, set and remove them: at a running service (--server), or straight on Redis (--redis). coatcheck incr adds to them.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(p.counterListCommand(), p.counterGetCommand(), p.counterSetCommand(), p.counterRemoveCommand())
	return command
}

// counters is where counters are: a running service, or Redis itself.
type counters interface {
	add(ctx context.Context, key string, request client.CounterRequest) (added, error)
	get(ctx context.Context, key string) (int64, error)
	set(ctx context.Context, key string, value int64, ttl time.Duration) error
	remove(ctx context.Context, key string) error
	list(ctx context.Context, prefix string) ([]wire.ListedCounter, error)
}

// counterSettings are those of the service that a command on counters takes as well when it goes straight to Redis.
var counterSettings = []string{"counter-after-loss", "counter-margin", "counter-hold-off"}

// bindCounters adds --server, --redis with what belongs to it, --config and the command's own settings to its flags.
func bindCounters(flags *pflag.FlagSet, own ...*setting) *source {
	return bindStraight(flags, counterSettings, own)
}

// atCounters runs the part of a command that needs counters, and says what kind of failure its error is.
func (p *program) atCounters(c *cobra.Command, s *source, command func(context.Context, counters) error) error {
	err := p.either(c, s, func(service *client.Client) error {
		return command(c.Context(), servedCounters{service})
	}, func(store *redisstore.Store) error {
		config := s.config.counters()
		config.Logger = p.logger(&s.config)
		all := counter.New(store, config)
		defer all.Close()
		return command(c.Context(), storedCounters{all})
	})
	return counterError(err)
}

// counterError makes an error one that has an exit code of its own.
func counterError(err error) error {
	switch {
	case errors.Is(err, counter.ErrRequest):
		return usageError{err}
	case errors.Is(err, client.ErrQuarantined), errors.Is(err, counter.ErrHoldOff):
		return laterError{err}
	case errors.Is(err, client.ErrBehind), errors.Is(err, counter.ErrBehind):
		return fmt.Errorf("%w\nFind out what was handed out, and set it past that: coatcheck counter set KEY VALUE", err)
	}
	return kindOf(err)
}

// servedCounters is counters at a running service.
type servedCounters struct{ service *client.Client }

func (s servedCounters) add(ctx context.Context, key string, request client.CounterRequest) (added, error) {
	got, err := s.service.Add(ctx, key, request)
	return addedOf(got), err
}

func (s servedCounters) get(ctx context.Context, key string) (int64, error) {
	return s.service.Counter(ctx, key)
}

func (s servedCounters) set(ctx context.Context, key string, value int64, ttl time.Duration) error {
	return s.service.SetCounter(ctx, key, value, ttl)
}

func (s servedCounters) remove(ctx context.Context, key string) error {
	return s.service.RemoveCounter(ctx, key)
}

func (s servedCounters) list(ctx context.Context, prefix string) ([]wire.ListedCounter, error) {
	all := []wire.ListedCounter{}
	for info, err := range s.service.Counters(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, listedCounter(info.Key, info.Value, info.Err))
	}
	return all, nil
}

func listedCounter(key string, value int64, err error) wire.ListedCounter {
	if err != nil {
		return wire.ListedCounter{Key: key, Error: string(wire.NotAnInteger)}
	}
	return wire.ListedCounter{Key: key, Value: &value}
}

// storedCounters is counters straight on Redis.
type storedCounters struct{ counters *counter.Counters }

func (s storedCounters) add(ctx context.Context, key string, request client.CounterRequest) (added, error) {
	now := time.Now()
	n, err := numberingOf(key, request, now)
	if err != nil {
		return added{}, err
	}
	got, err := s.counters.Add(ctx, n.key, n.counted(now))
	if err != nil {
		return added{}, err
	}
	written, err := n.write(got)
	return addedOf(written), err
}

func (s storedCounters) get(ctx context.Context, key string) (int64, error) {
	return s.counters.Get(ctx, key)
}

func (s storedCounters) set(ctx context.Context, key string, value int64, ttl time.Duration) error {
	return s.counters.Set(ctx, key, value, ttl)
}

func (s storedCounters) remove(ctx context.Context, key string) error {
	return s.counters.Reset(ctx, key)
}

// pageOfCounters is how many are read at once.
const pageOfCounters = 1000

func (s storedCounters) list(ctx context.Context, prefix string) ([]wire.ListedCounter, error) {
	all := []wire.ListedCounter{}
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := s.counters.List(ctx, prefix, cursor, pageOfCounters)
		if err != nil {
			return nil, err
		}
		for _, one := range page {
			all = append(all, listedCounter(one.Key, one.Value, one.Err))
		}
		cursor = next
	}
	return all, nil
}
