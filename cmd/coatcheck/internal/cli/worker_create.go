package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p *program) workerCreateCommand() *cobra.Command {
	var shape poolShape
	var replace bool
	command := &cobra.Command{
		Example: "  coatcheck worker create orders --layout 41/5/5/12 --datacenter 3",
		Use:     "create POOL", SuggestFor: []string{"new", "declare"}, Short: "Declare a pool new, so that its first lease waits for nothing",
		Long: "Declare that a pool is new: that none of its worker ids is in use anywhere. Its first lease then waits for no " +
			"quarantine. Exit code 1 if the pool is there already; with --replace it gets the layout, epoch, datacenter or TTL that is " +
			"named, and keeps the others, once all of its worker ids have been given back or have ended.",
		Args: onePool,
	}
	s := bindStraight(command.Flags(), workerSettings, append(shape.bind(workerlease.MinTTL), config.Toggle("replace", "give a pool "+
		"that is there the shape that is named; no window of it may be open, and ids that it has made before can come again under an "+
		"epoch or layout that overlaps", &replace))...)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		asked := shape.request("", s.said)
		wanted := client.PoolShape{TTL: asked.TTL, Layout: asked.Layout, Epoch: asked.Epoch, Datacenter: asked.Datacenter}
		declare := service.CreatePool
		if replace {
			declare = service.ReplacePool
		}
		created, err := declare(ctx, args[0], wanted)
		if err != nil {
			return err
		}
		return p.print(created, poolTable([]api.WorkerPool{created}))
	})
}

func poolTable(pools []api.WorkerPool) string {
	return tabular("POOL\tLAYOUT\tEPOCH\tENDS\tDATACENTER\tTTL\tSLOTS\tUSED\tSTATE", func(line func(...string)) {
		for _, pool := range pools {
			line(pool.Pool, pool.Layout, pool.Epoch.Format(time.RFC3339), endOf(pool), strconv.Itoa(pool.Datacenter),
				millis(pool.TTLMs).String(), strconv.Itoa(pool.Size), strconv.Itoa(pool.Used), stateOf(pool))
		}
	})
}

func endOf(pool api.WorkerPool) string {
	if pool.EndsAt.IsZero() {
		return "-"
	}
	return pool.EndsAt.Format(time.DateOnly)
}

func stateOf(pool api.WorkerPool) string {
	if !pool.EndsAt.IsZero() && time.Until(pool.EndsAt.Time) <= 0 {
		return "ended: its layout has no timestamps left"
	}
	if pool.Unasked {
		return fmt.Sprintf("waits for %v when asked", millis(pool.QuarantinedMs))
	}
	if pool.QuarantinedMs > 0 {
		return fmt.Sprintf("quarantined for %v", millis(pool.QuarantinedMs))
	}
	if pool.Held == pool.Size {
		return "full"
	}
	return "open"
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
