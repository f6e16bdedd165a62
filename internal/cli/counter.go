package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/internal/config"
)

func (p *program) counterCommand() *cobra.Command {
	return group("counter", "Look at counters, set and remove them",
		"Look at counters, set and remove them: at a running service (--server), or straight on Redis (--redis). coatcheck incr adds to them.",
		p.counterListCommand(), p.counterGetCommand(), p.counterSetCommand(), p.counterRemoveCommand())
}

// counterSettings are those of the service that a command on counters takes as well when it goes
// straight to Redis.
var counterSettings = []string{"counter-after-loss", "counter-margin", "counter-hold-off"}

// bindCounters adds --server, --redis with what belongs to it, --config and the command's own
// settings to its flags.
func bindCounters(flags *pflag.FlagSet, own ...*config.Setting) *source {
	return bindStraight(flags, counterSettings, own)
}
