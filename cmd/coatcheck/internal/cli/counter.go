package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/counter"
)

func (p *program) counterCommand() *cobra.Command {
	return group("counter", "Look at counters, set and remove them",
		"Look at counters, set and remove them: at a running service (--server), or straight on Redis (--redis). coatcheck incr "+
			"adds to them.",
		p.counterListCommand(), p.counterGetCommand(), p.counterSetCommand(), p.counterRemoveCommand())
}

func (p *program) counterListCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck counter ls orders",
		Use:     "ls [PREFIX]", SuggestFor: []string{"list"}, Short: "List counters with their values",
		Long: "List counters with their values, in the order of their keys, or those whose keys begin with PREFIX. Counters are listed " +
			"that coatcheck has added to or set.",
		Args: orNone(one("prefix", anything)),
	}
	s := bindStraight(command.Flags(), counterSettings)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		list, err := collected(service.Counters(ctx, strings.Join(args, ""))) // of one word at most
		if err != nil {
			return err
		}
		return p.print(api.Counters{Counters: list}, counterTable(list))
	})
}

func counterTable(list []api.ListedCounter) string {
	if len(list) == 0 {
		return "There is no counter.\n"
	}
	return tabular("COUNTER\tVALUE", func(line func(...string)) {
		for _, one := range list {
			value := "(" + string(one.Error) + ")"
			if one.Value != nil {
				value = strconv.FormatInt(*one.Value, 10)
			}
			line(one.Key, value)
		}
	})
}

func zoneOfKey(into *string) *config.Setting {
	return zoneName("zone", "time zone of KEY's date, such as Europe/Berlin; empty: UTC", into)
}

func (p *program) counterGetCommand() *cobra.Command {
	var zone string
	command := &cobra.Command{
		Example: "  coatcheck counter get 'orders:{yyyyMMdd}'",
		Use:     "get KEY", SuggestFor: []string{"show", "read"}, Short: "Print a counter's value",
		Long: "Print a counter's value: the last that was handed out. KEY can end in a date, as for coatcheck incr. Exit code 1: there " +
			"is no such counter, or it holds no integer.",
		Args: oneCounter,
	}
	s := bindStraight(command.Flags(), counterSettings, zoneOfKey(&zone))
	command.ValidArgsFunction = offerCounters(p, s)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		one, err := oneOf(args[0], zone, time.Now())
		if err != nil {
			return err
		}
		value, err := service.Counter(ctx, one.key)
		if err != nil {
			return err
		}
		return p.print(api.Counter{Key: one.key, Value: value}, fmt.Sprintf("%d\n", value))
	})
}

type counterSet struct {
	value int64
	ttl   time.Duration
	zone  string
	back  bool
}

func (p *program) counterSetCommand() *cobra.Command {
	var set counterSet
	command := &cobra.Command{
		Example: "  coatcheck counter set orders 41000",
		Use:     "set KEY VALUE", Short: "Set a counter: the next value that is handed out is one more",
		Long: "Set a counter: the next value that is handed out is one more. Setting it back hands values out again, so that it takes " +
			"--back; so does setting what holds no integer. Without --ttl the counter has no end.\n" +
			"KEY can end in a date, as for coatcheck incr. A value that is negative goes after two dashes: coatcheck counter set -- KEY -5",
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) != 2 {
				return usageError{fmt.Errorf("a counter's key and a value belong here, not %d words", len(args))}
			}
			if set.value, err = strconv.ParseInt(args[1], 10, 64); err != nil {
				return usageError{fmt.Errorf("%q is not a whole number of 64 bits", args[1])}
			}
			return nil
		},
	}
	s := bindStraight(command.Flags(), counterSettings, zoneOfKey(&set.zone),
		config.Optional(config.Span("ttl", config.Unsaid, counter.MinTTL, counter.MaxTTL,
			"how long it lives; empty: for ever, or with a date for two days longer than its period", &set.ttl)),
		config.Toggle("back", "set it also to a smaller value, or in the place of what is no integer", &set.back))
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if _, short := errors.AsType[*pflag.NotExistError](err); short {
			err = fmt.Errorf("%w; a value that is negative goes after two dashes: coatcheck counter set -- KEY -5", err)
		}
		return usageError{withNearest(c.Flags(), err)}
	})
	command.ValidArgsFunction = offerCounters(p, s)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		return p.setCounter(ctx, service, args[0], set)
	})
}

func (p *program) setCounter(ctx context.Context, service *client.Client, text string, set counterSet) error {
	now := time.Now()
	one, err := oneOf(text, set.zone, now)
	if err != nil {
		return err
	}
	err = service.SetCounter(ctx, one.key, set.value, client.SetCounterOptions{TTL: one.ttl(set.ttl, now), Back: set.back})
	if failure, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrPast) {
		return usageError{errors.New(failure.Detail)} // which names --back
	}
	if errors.Is(err, client.ErrNotAnInteger) {
		return usageError{fmt.Errorf("%w\nTo do it all the same: --back", err)}
	}
	if err != nil {
		return err
	}
	return p.print(api.Counter{Key: one.key, Value: set.value}, fmt.Sprintf("%d\n", set.value))
}

// unsure is the error of a look for a counter.
func unsure(key string, err error) error {
	switch {
	case errors.Is(err, client.ErrNotAnInteger):
		return usageError{fmt.Errorf("counter %s: %w\nTo do it all the same: --yes", key, err)}
	case err != nil:
		return fmt.Errorf("counter %s: %w", key, err)
	}
	return nil
}

func (p *program) counterRemoveCommand() *cobra.Command {
	var zone string
	var yes bool
	command := &cobra.Command{
		Example: "  coatcheck counter rm orders --yes",
		Use:     "rm KEY", SuggestFor: []string{"delete", "remove"}, Short: "Remove a counter: it begins again at 1",
		Long: "Remove a counter: it begins again at 1, and hands its values out again. Without --yes it says where the counter is, and " +
			"does nothing. KEY can end in a date, as for coatcheck incr.",
		Args: oneCounter,
	}
	s := bindStraight(command.Flags(), counterSettings, zoneOfKey(&zone), config.Toggle("yes", "do it", &yes))
	command.ValidArgsFunction = offerCounters(p, s)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		one, err := oneOf(args[0], zone, time.Now())
		if err != nil {
			return err
		}
		if yes {
			return service.RemoveCounter(ctx, one.key)
		}
		value, err := service.Counter(ctx, one.key)
		if err := unsure(one.key, err); err != nil {
			return err
		}
		return usageError{fmt.Errorf("counter %s is at %d: removed, it hands values out again\nTo do that: --yes", one.key, value)}
	})
}
