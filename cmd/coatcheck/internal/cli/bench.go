package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/loadgen"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/redisstore"
)

// benching is `bench`, as its flags say it.
type benching struct {
	*source

	what        string
	concurrency int64
	duration    time.Duration
	requests    int64
	rate        float64
	names       int64
	warmUp      time.Duration
	clean       bool
}

func (b *benching) bind() []*config.Setting {
	return []*config.Setting{
		config.Choice("what", benchIncr, benchKinds,
			"what is called: incr adds to a counter; token issues one; guard issues one, claims it and records the answer; lock takes "+
				"and releases; worker leases an id and gives it back; id and segment make an id", &b.what),
		config.Number("concurrency", "16", 1, 100_000, "callers", "how many call at once; with --rate how many can", &b.concurrency),
		config.Optional(config.Span("duration", config.Unsaid, 10*time.Millisecond, 24*time.Hour,
			"how long calls are begun; empty: 10s, or until --requests", &b.duration)),
		config.Optional(config.Number("requests", config.Unsaid, 1, 1_000_000_000, "calls",
			"how many calls; empty: until --duration", &b.requests)),
		config.Optional(perSecond("rate",
			"calls a second, each at its moment: an open loop; empty: each caller calls again when it is answered", &b.rate)),
		config.Number("keys", "1", 1, 10_000, "names", "how many counters, locks, pools or tags the calls take turns with", &b.names),
		config.Span("warm-up", "1s", 0, time.Hour, "the same load before, which is not measured", &b.warmUp),
		config.Toggle("clean", "removes what was made, as far as it does not go by itself", &b.clean),
	}
}

func perSecond(name, help string, into *float64) *config.Setting {
	return &config.Setting{Name: name, Unit: "calls/s", Help: help, Parse: func(s string) error {
		rate, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(rate) || rate < 0.01 || rate > loadgen.MaxRate {
			return fmt.Errorf("%q is not a number of calls a second from 0.01 to %d", s, loadgen.MaxRate)
		}
		*into = rate
		return nil
	}}
}

func (p *program) benchCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "bench", Short: "Put load on a running service, or on a Redis, and say how long calls take", Args: noArgs,
		Long: "Put load on a running service (--server), or straight on a Redis (--redis), and say how long calls take.\n\n" +
			"Without --rate as many callers as --concurrency call again when they are answered: when what is measured stalls, so does " +
			"the load, and few samples show it. With --rate each\n" +
			"call is meant for its own moment, and its latency counts from there, whether a caller was free then or not: so what waits " +
			"behind a stall is measured (no coordinated omission).\n\n" +
			"Failures end nothing and are counted by their codes. Ctrl-C ends it, with what was measured until then. All names that are " +
			"used begin with bench: and stay there;\n" +
			"--clean, or `coatcheck bench clean --redis URL`, removes them. Exit code 1 or 75 if no call succeeded.",
	}
	b := &benching{}
	b.source = bindStraight(command.Flags(), append([]string{"clock-skew", "lock-after-loss", "lock-longest-ttl", "segment-period",
		"segment-step"}, counterSettings...), b.bind()...)
	command.AddCommand(p.benchCleanCommand())
	return p.loaded(command, &b.Sources, func(c *cobra.Command, _ []string) error { return p.bench(c, b) })
}

func (b *benching) complete() {
	if b.duration == 0 && b.requests == 0 {
		b.duration = 10 * time.Second
	}
}

func (p *program) bench(c *cobra.Command, b *benching) error {
	b.complete()
	direct, err := b.direct()
	if err != nil {
		return usageError{err}
	}
	if direct {
		return p.straight(c, &b.Sources, func(store *redisstore.Store) error {
			here := p.serviceHere(&b.Service, store)
			here.Segments, here.SegmentStep, here.LockWaits = b.Service.Server.Segments, b.Service.Server.SegmentStep, int(b.concurrency)
			return askHere(c.Context(), here, func(ctx context.Context, service *client.Client) error {
				return p.measure(ctx, b, service, store.Address(), func(ctx context.Context) error {
					_, err := redisprobe.Sweep(ctx, store, benchNames, benchLists...)
					return err
				})
			})
		})
	}
	service, err := b.client(int(b.concurrency))
	if err != nil {
		return configError(err)
	}
	defer service.CloseIdleConnections()
	return p.measure(c.Context(), b, service, b.server, nil)
}

// benchPatience is how long the rest of a measurement may take after Ctrl-C.
const benchPatience = 10 * time.Second

func (p *program) measure(ctx context.Context, b *benching, service *client.Client, at string, sweepAll func(context.Context) error) error {
	w, live := workOf(b.what, service), p.live()
	if err := w.openAll(ctx, b, live); err != nil {
		return kindOf(err)
	}
	result, err := loadgen.Run(ctx, loadgen.Plan{
		Call:        func(ctx context.Context, n int64) error { return w.call(ctx, benchName(b.what, n, b.names)) },
		Code:        benchCode,
		Concurrency: int(b.concurrency), Duration: b.duration, Requests: b.requests, Rate: b.rate, WarmUp: b.warmUp,
		Progress: func(row loadgen.Row) { live.show(progressLine(b.what, row)) },
	})
	live.clear()
	if err != nil {
		return usageError{err}
	}
	report := reportOf(b, at, result)
	report.Left = b.tidy(ctx, w, sweepAll)
	return p.hand(report)
}

func (w work) openAll(ctx context.Context, b *benching, live liveLine) error {
	if w.open == nil {
		return nil
	}
	for n := range b.names {
		live.show(fmt.Sprintf("making %d of %d", n+1, b.names))
		if err := w.open(ctx, benchName(b.what, n, b.names)); err != nil {
			return err
		}
	}
	return nil
}

// tidy cleans up if the flags say so, and reports what stays.
func (b *benching) tidy(ctx context.Context, w work, sweepAll func(context.Context) error) (left string) {
	if !b.clean || w.clean == nil && sweepAll == nil {
		return w.stays
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchPatience)
	defer cancel()
	var err error
	if sweepAll != nil {
		err = sweepAll(ctx)
	} else {
		for n := int64(0); n < b.names && err == nil; n++ {
			err = w.clean(ctx, benchName(b.what, n, b.names))
		}
	}
	if err != nil {
		return fmt.Sprintf("%s, since removing failed (%v)", w.stays, err)
	}
	return ""
}

func (p *program) hand(report benchReport) error {
	if err := p.print(report, report.people()); err != nil {
		return err
	}
	result := report.result
	if report.Requests > 0 {
		return nil
	}
	if codes := result.Codes(); len(codes) > 0 {
		err := fmt.Errorf("no call succeeded: %w", result.First[codes[0]])
		if passing(codes[0]) {
			return laterError{err}
		}
		return err
	}
	return errors.New("no call was made")
}

// benchLists are the kinds of which names are listed.
var benchLists = []string{"counters", "segments", "workers"}

func (p *program) benchCleanCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "clean", Short: "Remove from a Redis what measurements have left", Args: noArgs,
		Long: "Remove from a Redis every record of a name that begins with bench:. It looks at all keys, in steps that hold no caller up.",
	}
	s := bindStraight(command.Flags(), nil)
	command.RunE = func(c *cobra.Command, _ []string) error {
		return p.either(c, s, func(*client.Client) error {
			return usageError{errors.New("a service does not remove names: --redis URL of its Redis")}
		}, func(store *redisstore.Store) error {
			removed, err := redisprobe.Sweep(c.Context(), store, benchNames, benchLists...)
			if err != nil {
				return kindOf(err)
			}
			return p.print(map[string]int{"removed": removed}, fmt.Sprintf("Removed %d keys.\n", removed))
		})
	}
	return command
}
