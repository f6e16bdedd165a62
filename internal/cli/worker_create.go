package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p *program) workerCreateCommand() *cobra.Command {
	var shape poolShape
	var replace bool
	command := &cobra.Command{
		Use: "create POOL", Short: "Declare a pool new, so that its first lease waits for nothing",
		Long: "Declare that a pool is new: that none of its worker ids is in use anywhere. Its first lease then waits for no quarantine. Exit code 1 if the pool is there already; with --replace it gets another layout, epoch, datacenter or TTL, once all of its worker ids have been given back or have ended.",
		Args: onePool,
	}
	s := bindSource(command.Flags(), append(shape.bind(workerlease.MinTTL), config.Toggle("replace", "give a pool that is there the shape that is named; no window of it may be open, and ids that it has made before can come again under an epoch or layout that overlaps", &replace))...)
	command.RunE = func(c *cobra.Command, args []string) error {
		return p.ask(c, s, func(ctx context.Context, service *client.Client) error {
			asked := shape.request("", s.said)
			wanted := client.PoolShape{TTL: asked.TTL, Layout: asked.Layout, Epoch: asked.Epoch}
			if asked.Datacenter != nil {
				wanted.Datacenter = *asked.Datacenter
			}
			declare := service.CreatePool
			if replace {
				declare = service.ReplacePool
			}
			created, err := declare(ctx, args[0], wanted)
			if err != nil {
				return err
			}
			shown := shownPool(created)
			return p.print(shown, poolTable([]wire.WorkerPool{shown}))
		})
	}
	return command
}

func onePool(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{errors.New("one pool belongs here")}
	}
	return checkPool(args[0])
}

func poolTable(pools []wire.WorkerPool) string {
	var people strings.Builder
	table := tabwriter.NewWriter(&people, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "POOL\tLAYOUT\tEPOCH\tDATACENTER\tTTL\tSLOTS\tUSED\tSTATE")
	for _, pool := range pools {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%v\t%d\t%d\t%s\n", pool.Pool, pool.Layout, pool.Epoch.Format(time.RFC3339), pool.Datacenter, millis(pool.TTL), pool.Size, pool.Used, stateOf(pool))
	}
	_ = table.Flush() // to a strings.Builder, which takes everything
	return people.String()
}

func stateOf(pool wire.WorkerPool) string {
	if pool.Quarantined > 0 {
		return fmt.Sprintf("quarantined for %v", millis(pool.Quarantined))
	}
	return "open"
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
