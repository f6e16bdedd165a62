package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/textid"
)

func (p *program) idULIDCommand() *cobra.Command {
	return p.textCommand(&cobra.Command{
		Use: "ulid", Short: "Make ULIDs, one a line",
		Long: "Make ULIDs, one a line, which rise with time and from one to the next of a call. They need no service.",
		Args: noArgs,
	}, func([]string) (*string, func() (string, error)) { return nil, textid.NewULID })
}

func (p *program) idTypeIDCommand() *cobra.Command {
	return p.textCommand(&cobra.Command{
		Use: "typeid [PREFIX]", Short: "Make TypeIDs, one a line",
		Long: "Make TypeIDs, one a line: PREFIX, a _ and a UUID of version 7 in base 32, such as order_01h455vb4pex5vsknk084sn02q. They rise with time and from one to the next of a\n" +
			"call, and need no service.",
		Args: orNone(one("prefix", func(text string) error {
			if err := textid.CheckPrefix(text); err != nil {
				return usageError{fmt.Errorf("%q cannot be a prefix: %w", text, err)}
			}
			return nil
		})),
	}, func(args []string) (*string, func() (string, error)) {
		prefix := strings.Join(args, "") // of one word at most
		return &prefix, func() (string, error) { return textid.NewTypeID(prefix) }
	})
}

// textCommand completes a command that makes ids of this process alone. kind says, by its words,
// which prefix they have, nil for none, and how one is made.
func (p *program) textCommand(command *cobra.Command, kind func(args []string) (*string, func() (string, error))) *cobra.Command {
	var n int64
	l := &config.Sources{}
	l.Bind(command.Flags(), []*config.Setting{howMany(&n)})
	// a file may hold the service's as well
	l.Table = append(l.Table, config.ServiceSettings(&l.Service)...)
	shortCount(command.Flags())
	return p.loaded(command, l, func(_ *cobra.Command, args []string) error {
		prefix, next := kind(args)
		made := api.TextIDs{Prefix: prefix}
		for range n {
			id, err := next()
			if err != nil {
				return err
			}
			made.IDs = append(made.IDs, id)
		}
		return p.print(made, strings.Join(made.IDs, "\n")+"\n")
	})
}

// decodeTexts takes ULIDs or TypeIDs apart.
func (p *program) decodeTexts(texts []string, format string) error {
	list := []api.DecodedText{}
	for _, text := range texts {
		parts, err := textid.Decode(format, text)
		if err != nil {
			return usageError{fmt.Errorf("%q: %w", text, err)}
		}
		if parts.Time.Year() > 9999 { // JSON's times end there
			return usageError{fmt.Errorf("%s: of a time after the year 9999", text)}
		}
		list = append(list, api.DecodedText(parts))
	}
	return p.print(list, tabular("ID\tTIME\tUUID\tPREFIX", func(line func(...string)) {
		for _, one := range list {
			line(one.ID, textTime(one.Time), one.UUID, one.Prefix)
		}
	}))
}

func textTime(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Format("2006-01-02T15:04:05.000Z07:00")
}
