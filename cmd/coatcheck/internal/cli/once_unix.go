//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/supervise"
)

// run claims the key and runs the command, or finds the record of the one that ran before.
func (r *once) run(ctx context.Context, service *client.Client) (record onceRecord, ran bool, err error) {
	if err := r.found(); err != nil {
		return record, false, err
	}
	ctx, stop := supervise.UntilQuit(ctx)
	defer stop()
	// of the claim: once the command runs, signals are for it
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	waiting := context.AfterFunc(ctx, end)
	options := client.ClaimOptions{Lease: r.lease, Fingerprint: "once"}
	if r.resolve != "" {
		options.Resolve = r.findOut
	}
	var operation string
	result, err := service.DoKey(life, r.key, options, func(claimed context.Context, attempt *client.Attempt) ([]byte, error) {
		r.quiet()
		if !waiting() {
			attempt.Release()
			return nil, laterError{context.Cause(ctx)}
		}
		ran, operation = true, attempt.Operation
		record, err = r.supervised(claimed, attempt)
		if err != nil {
			return nil, err
		}
		if record.ExitCode != 0 && r.onFailure == "retry" {
			attempt.Release()
		}
		return json.Marshal(record)
	})
	r.quiet()
	switch {
	case errors.Is(err, client.ErrNotRecorded):
		// not of its cause's kind, which may be that Redis is away: 75 says that nothing was run
		return record, ran, fmt.Errorf("%s ran and ended with exit code %d, but that could not be recorded: %s\nIt is in doubt when its "+
			"lease of %v has lapsed. %s",
			r.key.Key, record.ExitCode, err.Error(), r.lease, r.howToSettle(operation))
	case err == nil && result.Replayed:
		return r.recorded(result.Value), false, nil
	}
	if work, failed := errors.AsType[*client.WorkError](err); failed {
		err = work.Err
	}
	return record, ran, err
}

// What the command of --resolve says by its exit code.
const (
	saysHappened = 0
	saysNotBegun = 10 // no shell and no signal ends a command with it
)

// findOut runs the command of --resolve, which closes the attempt and says what became of it.
func (r *once) findOut(ctx context.Context, operation string, fence int64) (said client.Resolution, err error) {
	command := exec.CommandContext(ctx, "/bin/sh", "-c", r.resolve)
	command.Env = r.environment("ONCE_KEY="+r.key.Key, "ONCE_OPERATION="+operation, "ONCE_FENCE="+strconv.FormatInt(fence, 10))
	command.Stdout, command.Stderr = r.warnings, r.warnings
	command.WaitDelay = time.Second
	err = command.Run()
	failed, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		body, err := json.Marshal(onceRecord{Key: r.key.Key, ExitCode: saysHappened, Owner: ownerOf(""), Ended: api.At(time.Now())})
		said.Decision = api.DecisionHappened
		said.Answer = client.Answer{Header: map[string]string{"Content-Type": "application/json"}, Body: body}
		return said, err
	case ended && failed.ExitCode() == saysNotBegun:
		return client.Resolution{Decision: api.DecisionNotBegun}, nil
	}
	fmt.Fprintf(r.warnings, "coatcheck: the command of --resolve says neither 0 nor %d (%v): it stays in doubt, and a later call asks again\n",
		saysNotBegun, err)
	return said, fmt.Errorf("the command of --resolve: %w", err)
}

// supervised runs the command to its end. An error leaves the key in doubt, unless the command did
// not begin.
func (r *once) supervised(claimed context.Context, attempt *client.Attempt) (record onceRecord, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, supervise.Signals()...)
	defer signal.Stop(signals)
	record = onceRecord{Key: r.key.Key, Attempt: attempt.Number, Owner: ownerOf(""), Began: api.At(time.Now())}
	if r.job != nil {
		record.ExitCode, err = r.job()
		return record, err
	}
	claim := &onceClaim{run: r, claimed: claimed, attempt: attempt, window: forever()}
	ended, err := supervise.Run(claim, r.command, r.allowed(supervise.Allowance{Grace: r.grace, Margin: time.Second}), signals, r.warnings)
	record.Ended, record.ExitCode = api.At(time.Now()), ended.Code
	switch {
	case !ended.Began:
		attempt.Release()
		return record, notStarted(err)
	case errors.Is(err, client.ErrUnknownToken):
		return record, fmt.Errorf("%w\nIt may have had its effect, and the next call runs it again: look at the effect before", err)
	case err != nil:
		return record, fmt.Errorf("%w\n%s is in doubt when its lease of %v has lapsed. %s", err, r.key.Key, r.lease,
			r.howToSettle(attempt.Operation))
	case ended.Code > 128, ended.Code != 0 && ended.Told && r.onFailure == "retry":
		return record, fmt.Errorf("the command %s, so it may have had its effect or not: %s is in doubt when its lease of %v has lapsed\n%s",
			howEnded(ended), r.key.Key, r.lease, r.howToSettle(attempt.Operation))
	}
	return record, nil
}

// howEnded says how a command ended that nobody knows the effect of. A code over 128 is 128 and the
// number of a signal; over that of the last signal, 64, it is the program's own.
func howEnded(end supervise.End) string {
	switch {
	case end.Code > 128+64:
		return fmt.Sprintf("ended with exit code %d", end.Code)
	case end.Code > 128:
		return fmt.Sprintf("was killed by signal %d", end.Code-128)
	}
	return fmt.Sprintf("was sent a signal and ended with exit code %d", end.Code)
}

// onceClaim is a claim as the supervision of a command takes it. Under the policy hold no other
// attempt begins when the claim's lease lapses, so that the command has no deadline: it ends early
// only where the record of it is gone.
type onceClaim struct {
	run     *once
	claimed context.Context
	attempt *client.Attempt
	window  supervise.Window
}

// forever is a window that no command outlives.
func forever() supervise.Window {
	const years = 10 * 365 * 24 * time.Hour
	now := supervise.SinceBoot()
	return supervise.Window{Server: time.Now().Add(years).Round(0), Boot: (now + years).Truncate(time.Millisecond)}
}

func (*onceClaim) TellsEnd() bool                      { return false }
func (c *onceClaim) Context() context.Context          { return c.claimed }
func (c *onceClaim) Window() (supervise.Window, error) { return c.window, nil }
func (*onceClaim) Gone(error) bool                     { return false }

func (c *onceClaim) Environment(string) []string {
	return c.run.environment(
		"ONCE_KEY="+c.run.key.Key,
		"ONCE_OPERATION="+c.attempt.Operation,
		"ONCE_FENCE="+strconv.FormatInt(c.attempt.Fence, 10),
		"ONCE_ATTEMPT="+strconv.Itoa(c.attempt.Number))
}

// Lost is the error of a command that was stopped since another one could begin.
func (c *onceClaim) Lost(cause error) error {
	return fmt.Errorf("the record of %s was lost, or ended by an operator, and the command stopped: %w", c.run.key.Key, cause)
}
