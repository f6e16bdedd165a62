//go:build !unix

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// run needs process groups and signals to be sure that a command has ended.
func (*workerRun) run(context.Context, pools) error {
	return errors.New("worker run works on Unix systems only: elsewhere a command and what it has started can not be stopped for certain")
}

func (*workerRun) attempt(context.Context, pools) (*held, error) { return nil, errors.ErrUnsupported }

func (p *program) guardCommand() *cobra.Command { return &cobra.Command{Use: "guard", Hidden: true} }
