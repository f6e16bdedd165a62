package cli

import (
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

func (p *program) idUUIDCommand() *cobra.Command {
	var n int64
	command := &cobra.Command{
		Use: "uuid [4|7]", Short: "Make UUIDs, one a line",
		Long: "Make UUIDs, one a line, of version 7, which rise with time and from one to the next of a call, or of version 4, which " +
			"are random. They need no service.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] != "4" && args[0] != "7" {
				return usageError{errors.New("a version belongs here, 4 or 7, or nothing")}
			}
			return nil
		},
	}
	l := &config.Sources{}
	l.Bind(command.Flags(), []*config.Setting{howMany(&n)})
	// a file may hold the service's as well
	l.Table = append(l.Table, config.ServiceSettings(&l.Service)...)
	shortCount(command.Flags())
	return p.loaded(command, l, func(_ *cobra.Command, args []string) error {
		return p.makeUUIDs(len(args) == 1 && args[0] == "4", int(n))
	})
}

func (p *program) makeUUIDs(random bool, n int) error {
	made, next := api.UUIDs{Version: 7}, uuid.NewV7
	if random {
		made.Version, next = 4, uuid.NewRandom
	}
	for range n {
		id, err := next()
		if err != nil {
			return err
		}
		made.IDs = append(made.IDs, id.String())
	}
	return p.print(made, strings.Join(made.IDs, "\n")+"\n")
}
