package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/textid"
)

func (p *program) idUUIDCommand() *cobra.Command {
	return p.textCommand(&cobra.Command{
		Example: "  coatcheck id uuid 7 -n 3",
		Use:     "uuid [4|7]", Short: "Make UUIDs, one a line",
		Long: "Make UUIDs, one a line, of version 7, which rise with time and from one to the next of a call, or of version 4, which " +
			"are random. They need no service.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] != "4" && args[0] != "7" {
				return usageError{errors.New("a version belongs here, 4 or 7, or nothing")}
			}
			return nil
		},
	}, func(args []string) textKind {
		version, next := 7, uuid.NewV7
		if slices.Contains(args, "4") {
			version, next = 4, uuid.NewRandom
		}
		return textKind{func() (string, error) {
			id, err := next()
			return id.String(), err
		}, func(ids []string) any { return api.UUIDs{Version: version, IDs: ids} }}
	})
}

func (p *program) idULIDCommand() *cobra.Command {
	return p.textCommand(&cobra.Command{
		Example: "  coatcheck id ulid",
		Use:     "ulid", Short: "Make ULIDs, one a line",
		Long: "Make ULIDs, one a line, which rise with time and from one to the next of a call. They need no service.",
		Args: noArgs,
	}, func([]string) textKind {
		return textKind{textid.NewULID, func(ids []string) any { return api.TextIDs{IDs: ids} }}
	})
}

func (p *program) idTypeIDCommand() *cobra.Command {
	return p.textCommand(&cobra.Command{
		Example: "  coatcheck id typeid order",
		Use:     "typeid [PREFIX]", Short: "Make TypeIDs, one a line",
		Long: "Make TypeIDs, one a line: PREFIX, a _ and a UUID of version 7 in base 32, such as order_01h455vb4pex5vsknk084sn02q. They " +
			"rise with time and from one to the next of a\n" +
			"call, and need no service.",
		Args: orNone(one("prefix", func(text string) error {
			if err := textid.CheckPrefix(text); err != nil {
				return usageError{fmt.Errorf("%q cannot be a prefix: %w", text, err)}
			}
			return nil
		})),
	}, func(args []string) textKind {
		prefix := strings.Join(args, "") // of one word at most
		return textKind{func() (string, error) { return textid.NewTypeID(prefix) },
			func(ids []string) any { return api.TextIDs{Prefix: &prefix, IDs: ids} }}
	})
}

// textKind is a kind of ids that this process makes alone: how one is made, and what --json prints.
type textKind struct {
	next   func() (string, error)
	answer func(ids []string) any
}

// textCommand completes a command that makes ids of the kind that its words name.
func (p *program) textCommand(command *cobra.Command, kind func(args []string) textKind) *cobra.Command {
	var n int64
	l := &config.Sources{}
	l.Bind(command.Flags(), []*config.Setting{howMany(&n)}, nil)
	// a file may hold the service's as well
	l.Table = append(l.Table, config.ServiceSettings(&l.Service)...)
	shortCount(command.Flags())
	return p.loaded(command, l, func(_ *cobra.Command, args []string) error {
		made := kind(args)
		var ids []string
		for range n {
			id, err := made.next()
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return p.print(made.answer(ids), strings.Join(ids, "\n")+"\n")
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
		list = append(list, api.DecodedText{ID: parts.ID, Prefix: parts.Prefix, UUID: parts.UUID, Time: api.At(parts.Time)})
	}
	return p.print(map[string][]api.DecodedText{"ids": list}, tabular("ID\tTIME\tUUID\tPREFIX", func(line func(...string)) {
		for _, one := range list {
			line(one.ID, textTime(one.Time.Time), one.UUID, one.Prefix)
		}
	}))
}

func textTime(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Format("2006-01-02T15:04:05.000Z07:00")
}
