package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/limit"
)

type limitTaking struct {
	rate  client.LimitRate
	cost  int
	reset bool
}

func (p *program) limitCommand() *cobra.Command {
	var asked limitTaking
	command := &cobra.Command{
		Example: "  coatcheck limit sms:customer-17 --rate 10/h && ./send-sms",
		Use:     "limit NAME", Short: "Take from a rate limit, or exit with 75",
		Long: "Take from a rate limit, and print how much can be taken at once after that: coatcheck limit sms:customer-17 --rate 10/h " +
			"&& send-sms …\n\n" +
			"Exit code 75: there is no room now, and nothing was taken, or the service is away; what is printed says which, and when there " +
			"is room. All callers of a NAME state\n" +
			"the same --rate and --burst. At a service with keys --reset takes the role admin.",
		Args: one("limit", named("a limit's name")),
	}
	s := bindStraight(command.Flags(), nil,
		limitRate("rate", "how much may be taken in a span of time, such as 100/m, 5/s or 1000/24h", &asked.rate),
		config.Optional(config.Number("burst", config.Unsaid, 1, limit.MaxN, "",
			"how much may be taken at once; empty: as much as in a span", &asked.rate.Burst)),
		config.Number("cost", "1", -limit.MaxN, limit.MaxN, "",
			"how much to take; less than 0 gives back (role admin), 0 only looks", &asked.cost),
		config.Toggle("reset", "forget what was taken: the whole burst is free", &asked.reset))
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		switch {
		case asked.reset:
			return service.ResetLimit(ctx, args[0])
		case asked.rate.N == 0:
			return usageError{errors.New("--rate: required, such as --rate 100/m")}
		}
		state, err := service.TakeLimit(ctx, args[0], asked.rate, asked.cost)
		if errors.Is(err, client.ErrLimitReached) {
			return laterError{err}
		}
		if err != nil {
			return err
		}
		return p.print(api.LimitTaken{Allowed: true, Remaining: state.Remaining, ResetMs: state.Reset.Milliseconds()}, fmt.Sprintf("%d\n",
			state.Remaining))
	})
}

// limitRate is a number and a span: 100/m, 5/s, 1000/24h.
func limitRate(name, help string, into *client.LimitRate) *config.Setting {
	return config.Checked(name, "n/span", help, func(text string) (err error) {
		number, span, _ := strings.Cut(text, "/")
		if into.N, err = strconv.Atoi(number); err == nil {
			into.Per, err = parseSpan(span)
		}
		if err != nil || into.N < 1 || into.N > limit.MaxN || into.Per < time.Millisecond || into.Per > limit.MaxPer {
			return fmt.Errorf("%q is not a rate such as 100/m: 1 to %d, a slash, and s, m, h, d or a duration such as 10s", text, limit.MaxN)
		}
		return nil
	}, new(string))
}

// parseSpan reads s, m, h and d, each for one of it, and durations.
func parseSpan(text string) (time.Duration, error) {
	if slices.Contains([]string{"s", "m", "h", "d"}, text) {
		text = "1" + text
	}
	return config.ParseDuration(text)
}
