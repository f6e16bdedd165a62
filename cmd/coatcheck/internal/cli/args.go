package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/internal/names"
)

// one refuses anything but one argument that check takes.
func one(what string, check func(text string) error) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError{fmt.Errorf("one %s belongs here, not %d", what, len(args))}
		}
		return check(args[0])
	}
}

// some refuses a command line without arguments, with what belongs there.
func some(belongs string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError{errors.New(belongs)}
		}
		return nil
	}
}

// untilEnd reads standard input, which Ctrl-C does not end by itself: the process catches it. A
// reader that is left behind ends with the process.
func untilEnd(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	var text []byte
	done := make(chan error, 1)
	go func() {
		var err error
		text, err = read()
		done <- err
	}()
	select {
	case err := <-done:
		return text, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// orNone lets the argument be left out.
func orNone(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) == 0 {
			return nil
		}
		return args(c, given)
	}
}

func anything(string) error { return nil }

// named refuses what cannot be a name in a path.
func named(what string) func(text string) error {
	return func(text string) error {
		if !names.InPath(text) {
			return usageError{fmt.Errorf("%q cannot be %s: %s", text, what, names.Rule)}
		}
		return nil
	}
}

var (
	checkLock, checkPool, checkTag = named("a lock's name"), named("a pool's name"), named("a tag")

	oneCounter = one("counter's key", anything)
	oneLock    = one("lock", checkLock)
	onePool    = one("pool", checkPool)
	oneTag     = one("tag", checkTag)

	oneOperation = one("operation", anything)
)
