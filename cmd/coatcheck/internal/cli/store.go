package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
)

func (p *program) storeCommand() *cobra.Command {
	return group("store", "Say what happened to the Redis", "Say what happened to the Redis, where it cannot show that by itself.",
		p.storeRestoredCommand(), p.replicasGoneCommand())
}

func (p *program) storeRestoredCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "restored", Short: "Say that Redis was started from a copy or a backup",
		Long: "Say that this Redis was started from a copy or a backup. All state under the prefix counts as possibly lost, once: " +
			"worker ids wait until every one that may be in use has ended, counters and segments go on past all values, or are held.\n" +
			"Run it with --redis, after Redis has started and before services use it again. To run it twice is harmless. Tokens that " +
			"were used after the copy was made are not known to have been used: see docs/operations.md.",
		Args: noArgs,
	}
	s := bindStraight(command.Flags(), nil)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, _ []string) error {
		marked, err := service.Restored(ctx)
		if err != nil {
			return err
		}
		return p.print(api.Restored{Marked: marked},
			fmt.Sprintf("The state beside %d markers and pools counts as possibly lost, once.\n", marked))
	})
}

func (p *program) replicasGoneCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "replicas-gone [PLACE…]", Short: "Say that replicas which have confirmed writes are gone for good",
		Long: "Say that replicas which have confirmed writes under --ack all are gone for good, and that none of them becomes master. " +
			"Each write waits for them, and is outcome unknown without them. PLACE is the address of one, host:port; without any, all " +
			"are gone that are not attached now. One that is attached is refused. Nothing counts as lost.\n" +
			"First take them off the list of Sentinel (SENTINEL RESET) or of the cluster (CLUSTER FORGET). If one of them becomes master " +
			"all the same, values and worker ids come twice.",
	}
	s := bindStraight(command.Flags(), nil)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, places []string) error {
		changed, err := service.ReplicasGone(ctx, places...)
		if err != nil {
			return err
		}
		return p.print(api.Restored{Marked: changed},
			fmt.Sprintf("%d markers and pools wait for no replica that is gone.\n", changed))
	})
}
