//go:build !unix

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
)

// errNotUnix is for commands that need process groups and signals, to know that another has ended.
var errNotUnix = errors.New("this works on Unix systems only: elsewhere a command and what it has started cannot be stopped for certain")

func (*lockRun) run(context.Context, *client.Client) error { return errNotUnix }

func (*once) run(context.Context, *client.Client) (record onceRecord, ran bool, err error) {
	return record, false, errNotUnix
}

func (*workerRun) run(context.Context, *client.Client) error { return errNotUnix }

func (*workerRun) attempt(context.Context, *client.Client) (*held, error) { return nil, errNotUnix }

func (p *program) guardCommand() *cobra.Command { return &cobra.Command{Use: "guard", Hidden: true} }
