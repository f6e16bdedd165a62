//go:build !unix

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
)

// run needs process groups and signals to be sure that a command has ended.
func (*workerRun) run(context.Context, *client.Client) error {
	return errors.New("worker run works on Unix systems only: elsewhere a command and what it has started cannot be stopped for certain")
}

func (*workerRun) attempt(context.Context, *client.Client) (*held, error) {
	return nil, errors.ErrUnsupported
}

func (p *program) guardCommand() *cobra.Command { return &cobra.Command{Use: "guard", Hidden: true} }
