package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/snowflake"
)

type idForm struct {
	format snowflake.Format
	width  int64
}

func (f *idForm) bind(formats ...snowflake.Format) []*config.Setting {
	var names []string
	for _, format := range formats {
		names = append(names, string(format))
	}
	format := config.Choice("format", string(snowflake.FormatDecimal), names, "how ids are written", (*string)(&f.format))
	return []*config.Setting{
		format,
		config.Number("width", fmt.Sprint(snowflake.DefaultWidth), 1, int64(snowflake.MaxWidth), "digits",
			"of padded ids; one that has more is refused", &f.width),
	}
}

// shortCount lets --count be given as -n.
func shortCount(flags *pflag.FlagSet) {
	flags.VarP(alias{flags, "count"}, "n", "n", "")
	flags.Lookup("n").Hidden = true
}

type alias struct {
	flags *pflag.FlagSet
	name  string
}

func (a alias) Set(value string) error { return a.flags.Set(a.name, value) }
func (a alias) String() string         { return "" }
func (a alias) Type() string           { return "string" }

func (f *idForm) style(ctx context.Context, service *client.Client, pool string) (snowflake.Style, error) {
	style := snowflake.Style{Width: int(f.width)}
	if f.format != snowflake.FormatTimed {
		return style, nil
	}
	if pool == "" {
		return style, usageError{errors.New("format timed needs the layout and epoch of a pool: name it")}
	}
	var err error
	style.Layout, style.Epoch, err = originOf(ctx, service, pool)
	return style, err
}

// originOf asks for a pool's layout and epoch.
func originOf(ctx context.Context, service *client.Client, pool string) (snowflake.Layout, time.Time, error) {
	ring, err := service.Ring(ctx, pool, 0, 1)
	if err != nil {
		return snowflake.Layout{}, time.Time{}, err
	}
	layout, err := snowflake.ParseLayout(ring.Layout)
	return layout, ring.Epoch.Time, err
}

// idsMade answers `id --json`.
type idsMade struct {
	Pool string   `json:"pool,omitempty"` // none: the service's default pool
	IDs  []string `json:"ids"`
}

const (
	mostIDs     = 10_000
	defaultPool = "default" // where nothing else was said, as in the service's --id-pool
)

func (p *program) idCommand() *cobra.Command {
	command := p.snowflakeCommand("id", "Make ids, one a line: Snowflake ids, from segments, UUIDs, ULIDs, TypeIDs",
		"  coatcheck id orders -n 10")
	command.AddCommand(p.snowflakeCommand("snowflake", "Make Snowflake ids, as id without it does",
		"  coatcheck id snowflake orders -n 10"), p.idSegmentCommand(),
		p.idUUIDCommand(), p.idULIDCommand(), p.idTypeIDCommand(), p.idDecodeCommand())
	return command
}

// snowflakeCommand makes Snowflake ids, as id and, like the path in HTTP, as id snowflake.
func (p *program) snowflakeCommand(name, short, example string) *cobra.Command {
	var form idForm
	var n int64
	command := &cobra.Command{
		Use: name + " [POOL]", Short: short, Example: example,
		Long: "Make Snowflake ids, one a line: ID=$(coatcheck id). A running service stamps them with its own worker id. Straight on " +
			"Redis a worker id is leased for\n" +
			"the moment of the call, and pool \"default\" is taken where none is named. id snowflake is the same as id; ids of a pool that " +
			"is called as a command\n" +
			"is, such as segment, are id snowflake segment. Exit code 75: no id was made, try again later.",
		Args: orNone(onePool),
	}
	s := bindStraight(command.Flags(), workerSettings, append(form.bind(snowflake.Formats()...), howMany(&n))...)
	shortCount(command.Flags())
	command.ValidArgsFunction = offerPools(p, s, cobra.ShellCompDirectiveNoFileComp)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		pool := "" // the service's default
		if direct, err := s.direct(); direct && err == nil {
			pool = defaultPool
		}
		if len(args) == 1 {
			pool = args[0]
		}
		return p.makeIDs(ctx, service, pool, int(n), &form)
	})
}

func howMany(n *int64) *config.Setting {
	return config.Number("count", "1", 1, mostIDs, "ids", "how many; -n for short", n)
}

func (p *program) makeIDs(ctx context.Context, service *client.Client, pool string, n int, form *idForm) error {
	style, err := form.style(ctx, service, pool)
	if err != nil {
		return err
	}
	ids, err := service.SnowflakeIDs(ctx, pool, n)
	switch {
	case errors.Is(err, client.ErrUnknownOutcome):
		return laterError{err} // those ids are lost
	case err != nil && pool != "":
		return fmt.Errorf("pool %s: %w", pool, err)
	case err != nil:
		return err
	}
	texts, people, err := form.write(ids, style)
	if err != nil {
		return err
	}
	return p.print(idsMade{Pool: pool, IDs: texts}, people)
}

func (f *idForm) write(ids []snowflake.ID, style snowflake.Style) (texts []string, people string, err error) {
	var lines []byte
	for _, id := range ids {
		begin := len(lines)
		if lines, err = f.format.Append(lines, id, style); err != nil {
			return nil, "", err
		}
		texts = append(texts, string(lines[begin:]))
		lines = append(lines, '\n')
	}
	return texts, string(lines), nil
}
