package cli

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/names"
)

type increment struct {
	client.CounterRequest

	at string
}

func (i *increment) bind() []*config.Setting {
	return []*config.Setting{
		config.Number("by", "1", 1, counter.MaxBy, "values", "how many, one a line", &i.By),
		config.Optional(config.Number("limit", config.Unsaid, 1, math.MaxInt64, "value", "the largest value that the counter may come "+
			"to; what would pass it is refused, and nothing is added. Empty: none", &i.Limit)),
		repeatable("request-id", "makes the command repeatable for a day: the same id gets the same values of a counter, and adds once",
			&i.RequestID),
		config.Optional(config.Span("ttl", config.Unsaid, counter.MinTTL, counter.MaxTTL, "when the counter ends, from now, if this "+
			"call begins it; a counter without an end is refused. Empty: the end that it has, none, or with a date two days after its "+
			"period", &i.TTL)),
		config.Optional(config.Choice("after-loss", config.Unsaid, []string{client.AfterLossStay}, "for a count whose values nobody uses, with "+
			"--limit and an end: after a loss it goes on from the last value that is known. Empty: as the service is set", &i.AfterLoss)),
		config.Text("template", config.Unsaid, "text", "how each value is written, such as ORD-{yyyyMMdd}-{n:6}; with a date in it the "+
			"counter begins anew with each of its periods", &i.Template),
		zoneName("zone", "time zone whose date it is, such as Europe/Berlin; empty: UTC", &i.Zone),
		moment("at", "the moment whose date it is, within a day of now, so that a command that is repeated after midnight is the same; "+
			"empty: now", &i.at),
	}
}

func (p *program) incrCommand() *cobra.Command {
	var asked increment
	command := &cobra.Command{
		Example: "  coatcheck incr 'orders:{yyyyMMdd}' --template 'ORD-{yyyyMMdd}-{n:12}'",
		Use:     "incr KEY", Short: "Add to a counter, and print the values that are now yours",
		Long: "Add to a counter, and print the values that are now yours, one a line: N=$(coatcheck incr orders).\n\n" +
			"KEY can end in a date after a colon, as orders:{yyyyMMdd}: the counter then begins anew with each day, month or year. A " +
			"--template with a date does the same for a KEY\n" +
			"without. A value that the template cannot write is refused, and nothing is added.\n\n" +
			"After exit code 75 the command can be given again: nothing is handed out twice, but without --request-id there may be a gap.",
		Args: oneCounter,
	}
	s := bindStraight(command.Flags(), counterSettings, asked.bind()...)
	command.ValidArgsFunction = offerCounters(p, s)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		key, err := asked.complete(args[0])
		if err != nil {
			return usageError{err}
		}
		got, err := service.Add(ctx, key, asked.CounterRequest)
		if errors.Is(err, client.ErrUnknownOutcome) {
			// no caller has those values, or the one that repeats the request id gets them
			return laterError{err}
		}
		if err != nil {
			return err
		}
		return p.print(addedOf(got), addedLines(got))
	})
}

func (i *increment) complete(text string) (key string, err error) {
	if key, i.Calendar, err = splitKey(text); err != nil {
		return "", err
	}
	i.At, _ = time.Parse(time.RFC3339, i.at) // it was checked; empty is the zero time
	dated := i.Calendar != config.Unsaid || i.Template != config.Unsaid
	switch {
	case dated && i.TTL != 0:
		return "", errors.New("--ttl: not with a date or a template")
	case !dated && i.Zone != config.Unsaid:
		return "", errors.New("--zone: there is no date, in KEY or in a --template")
	case !dated && i.at != config.Unsaid:
		return "", errors.New("--at: there is no date, in KEY or in a --template")
	}
	return key, nil
}

var requestForm = names.NewForm(" -~", 1, 255)

// repeatable is a request id as the HTTP interface takes it; empty is none.
func repeatable(name, help string, into *string) *config.Setting {
	return config.Checked(name, "text", help, func(s string) error {
		if !requestForm.MatchString(s) {
			return errors.New("1 to 255 characters of printable ASCII belong here")
		}
		return nil
	}, into)
}

// addedOf is what `incr --json` prints: what the service answers.
func addedOf(got client.CounterRange) api.Incremented {
	answer := api.Incremented{Key: got.Key, First: got.First, Value: got.Last}
	if len(got.Numbers) == 1 {
		answer.Number = got.Numbers[0]
	} else {
		answer.Numbers = got.Numbers
	}
	return answer
}

// addedLines is one value a line, as the template writes it if there is one.
func addedLines(got client.CounterRange) string {
	if got.Numbers != nil {
		return strings.Join(got.Numbers, "\n") + "\n"
	}
	var lines []byte
	for value := got.First; ; value++ { // the last may be the largest there is
		lines = append(strconv.AppendInt(lines, value, 10), '\n')
		if value == got.Last {
			return string(lines)
		}
	}
}
