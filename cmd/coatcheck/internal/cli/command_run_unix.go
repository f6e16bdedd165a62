//go:build unix

package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/supervise"
)

// tenure is a lease that is held for a command.
type tenure interface {
	supervise.Lease

	TTL() time.Duration
	open(ctx context.Context) error // waits until the command may begin
	giveBack(end *supervise.End)    // end is the command's; nil = it did not begin
}

// under runs the command under a lease that obtain gets, and gives the lease back.
func (r *commandRun) under(ctx context.Context, obtain func(context.Context) (tenure, error)) error {
	if err := r.found(); err != nil {
		return err
	}
	ctx, stop := supervise.UntilQuit(ctx)
	defer stop()
	// of the lease: once the command runs, signals are for it
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	waiting := context.AfterFunc(ctx, end)
	h, err := obtain(life)
	r.quiet()
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, supervise.Signals()...)
	defer signal.Stop(signals)
	err = h.open(life)
	if !waiting() || err != nil {
		h.giveBack(nil)
		return laterError{errors.Join(context.Cause(ctx), err)}
	}
	ended, err := supervise.Run(h, r.command, r.allowed(supervise.Allowed(h.TTL(), r.grace)), signals, r.warnings)
	h.giveBack(&ended)
	if err != nil {
		return notStarted(err)
	}
	return exitError{ended.Code}
}

// allowed is what the command is allowed at the end of its lease.
func (r *commandRun) allowed(a supervise.Allowance) supervise.Allowance {
	a.Leave = r.signals == "leave"
	return a
}

// The exit codes that shells use if a command cannot be started, or does not exist.
const (
	cannotStart = 126
	notThere    = 127
)

// found returns why there is no such command.
func (r *commandRun) found() error {
	_, err := exec.LookPath(r.command[0])
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return codedError{err, notThere}
	}
	return codedError{err, cannotStart}
}

// notStarted gives the error of a command that could not be started its exit code.
func notStarted(err error) error {
	if errors.Is(err, supervise.ErrNotStarted) {
		return codedError{err, cannotStart}
	}
	return err
}

// guardCommand is what a user gets who calls the guard: Run of package supervise calls it, and then
// it does not come to this command.
func (p *program) guardCommand() *cobra.Command {
	return &cobra.Command{Use: "guard", Hidden: true, Short: "Used by `worker run`: runs a command until its window ends",
		DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error { return usageError{supervise.ErrNotAGuard} }}
}
