//go:build unix

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/supervise"
)

// guardCommand is the process between `lock run` or `worker run` and its command.
func (p *program) guardCommand() *cobra.Command {
	g := &supervise.Guard{}
	command := &cobra.Command{Use: "guard", Hidden: true, Short: "Used by `worker run`: runs a command until its window ends"}
	g.Bind(command.Flags())
	command.RunE = func(_ *cobra.Command, args []string) error {
		err := g.Run(args)
		if errors.Is(err, supervise.ErrNotAGuard) {
			return usageError{err}
		}
		return err
	}
	return command
}
