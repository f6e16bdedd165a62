package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/lock"
)

// lockRun is `lock run`: a command that runs while a lock is held for it.
type lockRun struct {
	commandRun

	name     string
	ls       string // the command that shows who holds it
	request  client.LockRequest
	atLeast  time.Duration // it is held, from its grant on, however soon the command ends
	conflict int           // the exit code when others hold it
	silent   bool          // says nothing then
}

func (p *program) lockRunCommand() *cobra.Command {
	r := &lockRun{commandRun: p.commandRun()}
	command := &cobra.Command{
		Example: "  coatcheck lock run --wait 5m deploy -- ./deploy.sh",
		Use:     "run NAME -- CMD…", Short: "Run a command under a lock",
		Long: "Run CMD while holding the lock NAME. LOCK_NAME, LOCK_FENCE and the end of the lease (LOCK_NOT_AFTER_FILE) are in its " +
			"environment. The lock is renewed while CMD\n" +
			"runs, and given back when CMD and its process group have ended. When it is lost, CMD and its group are stopped before another " +
			"process can hold it: SIGKILL\n" +
			"comes a margin before that (a tenth of the TTL, 200ms to 1s), which needs a machine that lets a process run within it that is " +
			"ready to.\n\n" +
			"Exit code: that of CMD, 128 and the number of the signal that killed it; --conflict-exit-code if others hold the lock; 75 if " +
			"it was not obtained for another\n" +
			"reason, such as a Redis that is away, or was lost. docs/locks.md says more.",
		Args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usageError{errors.New("one lock and, after two dashes, a command belong here: coatcheck lock run NAME -- CMD")}
			}
			return checkLock(args[0])
		},
	}
	s := bindStraight(command.Flags(), lockSettings,
		config.Span("ttl", "30s", shortestRun, lock.MaxTTL, "how long the lock is held without a renewal: after a crash it is free by then",
			&r.request.TTL),
		config.Span("wait", "0s", 0, 30*24*time.Hour, "how long to wait for the lock, in the order in which those who wait have come; "+
			"a service that takes the call and is silent may add 12s",
			&r.request.Wait),
		config.Optional(config.Named("owner", "", "says for people who holds the lock; empty: host:pid", &r.request.Owner)),
		config.Choice("mode", "exclusive", []string{"exclusive", "shared"}, "shared: with up to 255 others that ask the same",
			&r.request.Mode),
		config.Number("permits", "1", 1, lock.MaxPermits, "number", "as many may hold the lock at once, and at most 256; alike in all "+
			"that use it", &r.request.Permits),
		config.Span("at-least", "0s", 0, lock.MaxTTL, "how long the lock is held from its grant on, also after a CMD that ends sooner: "+
			"longer than the clocks of those who start the same CMD differ", &r.atLeast),
		config.Number("conflict-exit-code", strconv.Itoa(tryLater), 0, 255, "code",
			"the exit code when others hold the lock, also after --wait", &r.conflict),
		config.Toggle("quiet", "say nothing when others hold the lock", &r.silent),
		config.Span("grace", "5s", 0, time.Hour, "how long CMD may take to end between SIGTERM and SIGKILL; less if the lease ends sooner",
			&r.grace),
		r.signalsSetting(), r.passSettings())
	command.ValidArgsFunction = offerLocks(p, s, cobra.ShellCompDirectiveDefault)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		r.name, r.command, r.request.Owner = args[0], args[1:], ownerOf(r.request.Owner)
		r.ls = "coatcheck lock ls " + r.name + s.again()
		if err := r.settle(); err != nil {
			return err
		}
		return r.run(ctx, service)
	})
}

// settle makes a lock with permits of one with more than one.
func (r *lockRun) settle() error {
	if r.request.Permits == 1 {
		return nil
	}
	if r.request.Mode == "shared" {
		return usageError{errors.New("--mode shared and --permits: any number may share, name one of them")}
	}
	r.request.Mode = string(lock.ModePermits)
	return nil
}

// notObtained is the error of a lock that was not granted, with what to try.
func (r *lockRun) notObtained(err error) error {
	switch {
	case errors.Is(err, client.ErrHeld) && r.silent:
		return exitError{r.conflict}
	case errors.Is(err, client.ErrHeld):
		return codedError{fmt.Errorf("%w\nTry again later, or have it wait with %s. Who holds it: %s", err, longerWait(r.request.Wait),
			r.ls), r.conflict}
	case isAny(err, client.ErrUnavailable, client.ErrUnknownOutcome, client.ErrQuarantined, client.ErrLost):
		return laterError{err}
	}
	return err
}
