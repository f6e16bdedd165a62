package cli

import (
	"github.com/spf13/cobra"
)

func (p *program) counterCommand() *cobra.Command {
	return group("counter", "Look at counters, set and remove them",
		"Look at counters, set and remove them: at a running service (--server), or straight on Redis (--redis). coatcheck incr "+
			"adds to them.",
		p.counterListCommand(), p.counterGetCommand(), p.counterSetCommand(), p.counterRemoveCommand())
}
