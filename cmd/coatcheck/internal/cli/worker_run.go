package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// workerRun is `worker run`: a command that runs while a worker id is held for it.
type workerRun struct {
	commandRun

	pool    string
	request client.WorkerRequest
	wait    time.Duration // how long the lease may take to be had
	// how far the end of the command's last timestamp may be ahead of its clock
	ahead time.Duration
}

// commandRun is a command that runs while a lease is held for it.
type commandRun struct {
	command  []string
	grace    time.Duration // at most, between SIGTERM and SIGKILL
	pass     bool          // our settings go on to the command
	signals  string        // pass | leave
	warnings io.Writer
	quiet    func() // nothing waits any more
}

func (p *program) commandRun() commandRun { return commandRun{warnings: p.stderr, quiet: p.quiet} }

func (r *commandRun) signalsSetting() *config.Setting {
	return config.Choice("signals", "pass", []string{"pass", "leave"}, "a signal to coatcheck while CMD runs: pass sends it on to CMD; "+
		"leave does not, where who sends it reaches CMD as well, such as systemd with KillMode=control-group", &r.signals)
}

func (r *commandRun) passSettings() *config.Setting {
	return config.Toggle("pass-settings", "CMD inherits the COATCHECK_ variables, such as the API key and passwords, "+
		"which it lacks otherwise", &r.pass)
}

// environment is the command's: this process's own, without the settings of this program unless
// they are passed on, and more.
func (r *commandRun) environment(more ...string) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return !r.pass && strings.HasPrefix(variable, config.Variables)
	})
	return append(inherited, more...)
}

// shortestRun is the shortest TTL with which a process can be stopped in time with some certainty.
const shortestRun = time.Second

func (p *program) workerRunCommand() *cobra.Command {
	r := &workerRun{commandRun: p.commandRun()}
	var shape poolShape
	var identity string
	command := &cobra.Command{
		Example: "  coatcheck worker run --identity orders-0 orders -- ./orders",
		Use:     "run POOL -- CMD…", Short: "Run a command that has a worker id of its own",
		Long: "Lease a worker id and run CMD with it: WORKER_ID, WORKER_POOL, WORKER_LAYOUT, WORKER_EPOCH_MS, WORKER_DATACENTER, " +
			"WORKER_FENCE and the window\n" +
			"(WORKER_NOT_BEFORE_MS, WORKER_NOT_AFTER_MS, WORKER_NOT_AFTER_FILE) are in its environment. The lease is renewed while CMD " +
			"runs, and released when CMD and\n" +
			"its process group have ended. When it is lost, CMD and its group are stopped before the window can end: SIGTERM, and " +
			"SIGKILL a margin before the end (a tenth of\n" +
			"the TTL, 200ms to 1s). That needs a machine which lets a process run within the margin that is ready to; docs/workers.md " +
			"says what helps on others.\n\n" +
			"Exit code: that of CMD, 128 and the number of the signal that killed it; 75 if no worker id was to be had or it was lost. " +
			"docs/workers.md says more.",
		Args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usageError{errors.New("one pool and, after two dashes, a command belong here: coatcheck worker run POOL -- CMD")}
			}
			return checkPool(args[0])
		},
	}
	s := bindStraight(command.Flags(), workerSettings, append(shape.bind(shortestRun),
		config.Text("identity", "", "name", "names this holder: the worker id that it had last is leased again, if it is free", &identity),
		config.Span("wait", "0s", 0, 30*24*time.Hour, "how long to wait for a worker id", &r.wait),
		config.Span("stamps-ahead", "2s", 0, time.Minute,
			"how far ahead of the clock in WORKER_NOT_AFTER_FILE CMD may have stamped when it ends; the next holder of the worker id "+
				"begins after that. "+
				"0s, and a unit of the layout is counted: for a CMD that stamps no time to come", &r.ahead),
		config.Span("grace", "5s", 0, time.Hour, "how long CMD may take to end between SIGTERM and SIGKILL; less if the window ends sooner",
			&r.grace),
		r.signalsSetting(), r.passSettings())...)
	command.ValidArgsFunction = offerPools(p, s, cobra.ShellCompDirectiveDefault)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		r.pool, r.command, r.request = args[0], args[1:], shape.request(identity, s.said)
		return r.run(ctx, service)
	})
}

type held struct {
	*client.Holder

	run   *workerRun
	lease client.WorkerLease
	late  time.Duration         // the holder's clock is behind the server's by no more
	fault atomic.Pointer[error] // of the last renewal; nil = it succeeded
}

// obtain leases a worker id, and asks again within its patience.
func (r *workerRun) obtain(ctx context.Context, service *client.Client) (*held, error) {
	began := time.Now()
	for {
		h, err := r.attempt(ctx, service)
		if err == nil {
			return h, nil
		}
		left := r.wait - time.Since(began)
		if ctx.Err() != nil {
			return nil, laterError{err}
		}
		if !isAny(err, client.ErrExhausted, client.ErrQuarantined, client.ErrUnavailable, client.ErrUnknownOutcome, holder.ErrLate) {
			return nil, err
		}
		named := redisstore.RetryAfter(err)
		if left <= 0 {
			return nil, laterError{fmt.Errorf("no worker id was leased: %w%s", err, r.advice(named))}
		}
		// also after a longer stated wait: a holder may release, or a pool be declared new
		pause(ctx, min(max(named, 200*time.Millisecond), 5*time.Second, left))
	}
}

// longerWait names a wait that may help where that one, if any, did not.
func longerWait(was time.Duration) string {
	if was == 0 {
		return "--wait 1m"
	}
	return "a longer --wait than " + was.String()
}

// advice is what to try when no worker id could be leased.
func (r *workerRun) advice(named time.Duration) string {
	text := "\nTry again later, or have it wait with " + longerWait(r.wait) + "."
	if named > 0 {
		span := named.Round(time.Millisecond)
		text = fmt.Sprintf("\nTry again in %v, or have it wait with --wait %v.", span, r.wait+span)
	}
	return text
}
