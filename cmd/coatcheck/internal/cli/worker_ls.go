package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p *program) workerListCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck worker ls orders",
		Use:     "ls [POOL]", SuggestFor: []string{"get", "show", "list", "status", "info"}, Short: "List pools, or draw the ring of one",
		Long: "List all pools, or draw the ring of one: a character a worker id, 64 a row, larger rings a character a block. With " +
			"--json the slots that were ever leased.",
		Args: orNone(onePool),
	}
	s := bindStraight(command.Flags(), workerSettings)
	command.ValidArgsFunction = offerPools(p, s, cobra.ShellCompDirectiveNoFileComp)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if len(args) == 0 {
			return p.listPools(ctx, service)
		}
		return p.drawRing(ctx, service, args[0])
	})
}

func (p *program) listPools(ctx context.Context, service *client.Client) error {
	list, err := collected(service.Pools(ctx, ""))
	if err != nil {
		return err
	}
	waiting, err := collected(service.WaitingPools(ctx, ""))
	if err != nil {
		return err
	}
	people := ""
	switch {
	case len(list) > 0:
		people = poolTable(list)
	case len(waiting) == 0:
		people = "There are no pools. The first lease makes one: coatcheck worker run POOL -- CMD\n"
	}
	return p.print(api.WorkerPools{Pools: list, Waiting: waiting}, people+refusedNow(list, waiting))
}

// refusedNow says of each pool that grants nothing for now why that is, for how long, and the way
// out; "" if there is none.
func refusedNow(list []api.WorkerPool, waiting []api.WaitingPool) string {
	var lines strings.Builder
	for _, pool := range waiting {
		fmt.Fprintf(&lines, "%s grants its first worker id in %v: %s\n", pool.Pool, millis(pool.WaitMs).Round(time.Second), pool.Reason)
	}
	for _, pool := range list {
		if pool.QuarantinedMs == 0 {
			continue
		}
		when := "which ends by itself"
		if pool.Unasked {
			when = "from when one is asked for"
		}
		fmt.Fprintf(&lines, "%s grants none for %v, %s: %s\n", pool.Pool, millis(pool.QuarantinedMs).Round(time.Second), when,
			cmp.Or(pool.Reason, "leases may have been lost"))
	}
	return lines.String()
}

func (p *program) drawRing(ctx context.Context, service *client.Client, pool string) error {
	whole, err := wholeRing(ctx, service, pool)
	if err != nil {
		return err
	}
	return p.print(leased(whole), poolTable([]api.WorkerPool{whole.WorkerPool})+"\n"+ringPicture(whole, colourful(p.stdout, p.getenv)))
}

// wholeRing reads a ring page by page, without the worker ids after the last that was ever leased.
func wholeRing(ctx context.Context, service *client.Client, pool string) (whole api.WorkerRing, err error) {
	for met := 0; ; {
		page, err := service.Ring(ctx, pool, len(whole.Slots), workerlease.MaxSlots)
		if err != nil {
			return api.WorkerRing{}, err
		}
		whole.WorkerPool, whole.ServerTime = page.WorkerPool, page.ServerTime
		for _, slot := range page.Slots {
			if slot.Fence != 0 {
				met++
			}
			whole.Slots = append(whole.Slots, slot)
		}
		if len(whole.Slots) >= whole.Size || met >= whole.Used {
			return whole, nil
		}
		if len(page.Slots) == 0 {
			return api.WorkerRing{}, errors.New("the ring came without its slots")
		}
	}
}

// leased is a ring with the slots that were ever leased.
func leased(ring api.WorkerRing) api.WorkerRing {
	ring.Slots = slices.DeleteFunc(append([]api.WorkerSlot{}, ring.Slots...), func(slot api.WorkerSlot) bool { return slot.Fence == 0 })
	return ring
}
