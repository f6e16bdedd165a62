//go:build !unix

package cli

import (
	"context"
	"errors"
)

// run needs process groups and signals to be sure that a command has ended.
func (*lockRun) run(context.Context, acquire) error {
	return errors.New("lock run works on Unix systems only: elsewhere a command and what it has started cannot be stopped for certain")
}
