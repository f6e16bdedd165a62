package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
		Example: "  coatcheck store restored --redis redis://localhost:6379",
		Use:     "restored", Short: "Say that Redis was started from a copy or a backup",
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
		Example: "  coatcheck store replicas-gone 10.0.0.7:6379 --redis redis://localhost:6379",
		Use:     "replicas-gone [PLACE…]", Short: "Say that replicas which have confirmed writes are gone for good",
		Long: "Say that replicas which have confirmed writes under --ack all are gone for good, and that none of them becomes master. " +
			"Each write waits for them, and its outcome is unknown without them. PLACE is the address of one, host:port; without any, " +
			"all are gone that are noted and not attached now. Nothing counts as lost.\n" +
			"First take them off the list of Sentinel (SENTINEL RESET) or of the cluster (CLUSTER FORGET): one that is attached or listed " +
			"is refused. Then the command takes 11 seconds. If one of them becomes master all the same, values and worker ids come twice.",
	}
	s := bindStraight(command.Flags(), nil)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, places []string) error {
		fmt.Fprintln(p.stderr, "coatcheck: with Sentinel or in a cluster this takes 11 seconds, until no process knows the replicas from an "+
			"older list")
		gone, err := service.ReplicasGone(ctx, places...)
		if err != nil {
			return err
		}
		told := "No write has waited for a replica that is gone.\n"
		if len(gone) > 0 {
			told = fmt.Sprintf("No write waits for %s any more.\n", strings.Join(gone, ", "))
		} else if len(places) > 0 {
			told = ""
		}
		others := slices.DeleteFunc(slices.Clone(places), func(place string) bool { return slices.Contains(gone, place) })
		if err := p.print(api.ReplicasGone{Gone: gone}, told); err != nil || len(others) == 0 {
			return err
		}
		return fmt.Errorf("no write has waited for %s, which is not noted. Under --ack with a number Redis counts replicas without their "+
			"addresses: lower --ack. The reason of /readyz names a server that writes wait for", strings.Join(others, ", "))
	})
}
