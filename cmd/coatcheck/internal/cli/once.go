package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/number"
)

// once is `once`: a command that runs if none has for its key.
type once struct {
	commandRun

	key       client.OwnKey
	zone      string
	keep      time.Duration // 0 = by the key
	lease     time.Duration
	wait      time.Duration
	silent    bool
	conflict  int // the exit code while the command runs elsewhere
	onFailure string
	resolve   string // a command for sh
	again     string // what names the place on the command line, for the commands that are printed
	// of a test, in place of the command; nil = the command is run
	job func() (code int, err error)
}

// onceRecord is the recorded answer, and what --json prints of a command that ran before.
type onceRecord struct {
	Key      string   `json:"key"`
	ExitCode int      `json:"exit_code"`
	Attempt  int      `json:"attempt,omitzero"`
	Owner    string   `json:"owner,omitzero"` // host:pid; empty: recorded by other means than once
	Began    api.Time `json:"began,omitzero"`
	Ended    api.Time `json:"ended,omitzero"`
}

// story is the line about a command that ran before.
func (r onceRecord) story() string {
	if r.Owner == "" {
		return r.Key + " ran before, as another client or an operator has recorded"
	}
	return fmt.Sprintf("%s ran before, on %s, and ended at %s with exit code %d", r.Key, r.Owner, clockText(r.Ended.Time), r.ExitCode)
}

func (p *program) onceCommand() *cobra.Command {
	r := &once{commandRun: p.commandRun()}
	command := &cobra.Command{
		Example: "  coatcheck once 'nightly:{yyyyMMdd}' -- ./nightly.sh",
		Use:     "once KEY -- CMD…", Short: "Run a command if none has for this key",
		Long: "Run CMD if none has for KEY: coatcheck once nightly:{yyyyMMdd} -- ./nightly on three nodes runs it on one of them, once " +
			"a day. A date in braces makes the key one\n" +
			"of the day, month or year. ONCE_KEY, ONCE_OPERATION, ONCE_FENCE and ONCE_ATTEMPT are in CMD's environment.\n\n" +
			"When CMD has ended well, that is recorded for --keep: later calls print a line and exit with its code, 0. A CMD that fails " +
			"gives the key back, so that the next\n" +
			"call runs it again; with --on-failure keep its exit code is recorded as well. A CMD that is killed, and one whose machine or " +
			"coatcheck dies, may have had its effect:\n" +
			"it is in doubt, nothing runs again, and what is printed says how to settle it. With --resolve COMMAND the next call has " +
			"the shell run COMMAND to find out:\n" +
			"it makes sure that an attempt with ONCE_FENCE or a smaller one has no effect from then on, and exits with 0 if there was " +
			"one, with 10 if there was none.\n\n" +
			"Exit code: that of CMD, now or then; 75 while it runs elsewhere (--wait waits for its end), or if nothing was begun since the " +
			"service or Redis is away; 126 or 127 if CMD cannot be started, or is not there; 1 in doubt.\n" +
			"docs/once.md says more.",
		Args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usageError{errors.New("one key and, after two dashes, a command belong here: coatcheck once KEY -- CMD")}
			}
			return nil
		},
	}
	s := bindStraight(command.Flags(), operationSettings, r.settings()...)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		r.again = s.again()
		return r.start(ctx, p, service, args)
	})
}

// start runs the command after the key, or tells what became of the one that ran before.
func (r *once) start(ctx context.Context, p *program, service *client.Client, args []string) (err error) {
	now := time.Now()
	var ends time.Time
	if r.key.Key, ends, err = keyNow(args[0], r.zone, now); err != nil {
		return usageError{err}
	}
	r.command, r.key.Retention = args[1:], cmp.Or(r.keep, keepUntil(ends, now))
	record, ran, err := r.await(ctx, service)
	switch {
	case err != nil:
		return err
	case !ran && p.json:
		if err := p.print(record, ""); err != nil {
			return err
		}
	case !ran && !r.silent:
		fmt.Fprintf(p.stderr, "coatcheck: %s\n", record.story())
	}
	return exitError{record.ExitCode}
}

func (r *once) settings() []*config.Setting {
	return []*config.Setting{
		config.Optional(config.Named("scope", "", "keeps keys of different kinds apart; empty: none", &r.key.Scope)),
		config.Optional(config.Span("keep", config.Unsaid, time.Second, longestKeep, "how long the record stays, from the end of CMD on: "+
			"longer than the clocks of those who start the same CMD differ; empty: until the period of a date in KEY is over, and 48h; "+
			"without a date 24h", &r.keep)),
		config.Span("lease", "30s", shortestRun, 24*time.Hour, "how long coatcheck may be silent, dead or cut off, before CMD is in doubt",
			&r.lease),
		config.Choice("on-failure", "retry", []string{"retry", "keep"},
			"a CMD that fails: retry gives the key back, keep records its exit code", &r.onFailure),
		config.Optional(config.Text("resolve", "", "command", "a command for the shell that closes a CMD in doubt and finds out what "+
			"became of it: exit code 0 it has happened, 10 it has not, any other: not known; empty: a person settles it", &r.resolve)),
		config.Span("wait", "0s", 0, 30*24*time.Hour, "how long to wait for the end of a CMD that runs elsewhere, and for a service or a "+
			"Redis that is away; one that takes the call and is silent may add 21s", &r.wait),
		zoneName("zone", "time zone whose date it is, such as Europe/Berlin; empty: this machine's, as for cron", &r.zone),
		config.Toggle("quiet", "say nothing of a CMD that ran before or runs elsewhere", &r.silent),
		config.Number("conflict-exit-code", strconv.Itoa(tryLater), 0, 255, "code",
			"the exit code while CMD runs elsewhere, also after --wait", &r.conflict),
		config.Span("grace", "5s", 0, time.Hour, "how long CMD may take to end between SIGTERM and SIGKILL, when Redis has lost its record",
			&r.grace),
		r.signalsSetting(), r.passSettings(),
	}
}

const (
	longestKeep = idempotency.MaxRetention
	keepBare    = 24 * time.Hour // a key without a date
	keepBeyond  = 48 * time.Hour // the end of a period: clocks and zones differ by less
)

// keepUntil is how long the record of a key stays whose period ends then.
func keepUntil(ends, now time.Time) time.Duration {
	if ends.IsZero() {
		return keepBare
	}
	return min(ends.Sub(now)+keepBeyond, longestKeep)
}

// keyNow is a key with the date in it, in a zone or else in that of now, and when its period ends.
// A key without a date has no period.
func keyNow(text, zone string, now time.Time) (key string, ends time.Time, err error) {
	if !strings.ContainsAny(text, "{}") {
		if zone != config.Unsaid {
			return "", ends, errors.New("--zone: there is no date in KEY")
		}
		return text, ends, nil
	}
	clock := now.Location()
	if zone != config.Unsaid {
		if clock, err = time.LoadLocation(zone); err != nil {
			return "", ends, err
		}
	}
	dated, err := number.ParseCalendarKey(text, clock)
	if err != nil {
		return "", ends, fmt.Errorf("braces in KEY hold a date, once, as in nightly:{yyyyMMdd} or close:{yyyy-MM}, and around it are "+
			"A–Z a–z 0–9 . _ : ~ @ - alone: %w", err)
	}
	key, period, err := dated.At(now)
	return key, period.Until, err
}

// oncePoll is the longest pause between two questions whether a command elsewhere has ended.
const oncePoll = 2 * time.Second

// await runs the command, or waits for the end of one that runs elsewhere, or for a store that is
// away, as long as --wait says.
func (r *once) await(ctx context.Context, service *client.Client) (record onceRecord, ran bool, err error) {
	for until, pause := time.Now().Add(r.wait), 50*time.Millisecond; ; pause = min(2*pause, oncePoll) {
		record, ran, err = r.run(ctx, service)
		left := time.Until(until)
		if ran || left <= 0 || !isAny(err, client.ErrInProgress, client.ErrUnavailable, client.ErrUnknownOutcome) {
			return record, ran, r.explain(err, ran)
		}
		select {
		case <-ctx.Done():
			return record, false, laterError{fmt.Errorf("%w (%w)", err, context.Cause(ctx))}
		case <-time.After(min(pause, left)):
		}
	}
}

// explain completes an error with what to do.
func (r *once) explain(err error, ran bool) error {
	failure, _ := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, client.ErrInProgress):
		return r.elsewhere(err)
	case errors.Is(err, client.ErrInDoubt) && failure != nil:
		return fmt.Errorf("%s is in doubt: a command began and did not come to its end, so it may have had its effect. Nothing was run\n%s",
			r.key.Key, r.howToSettle(failure.Operation))
	// a signal came before the claim was sent
	case !ran && errors.Is(err, client.ErrRefused) && errors.Is(err, context.Canceled), errors.Is(err, client.ErrUnknownOutcome):
		return laterError{fmt.Errorf("nothing was run: %w", err)}
	}
	return err
}

// elsewhere is the error while the command runs elsewhere.
func (r *once) elsewhere(err error) error {
	if r.silent {
		return exitError{r.conflict}
	}
	return codedError{fmt.Errorf("%s runs elsewhere: %w\nTry again later, or have it wait with %s", r.key.Key, err, longerWait(r.wait)),
		r.conflict}
}

// howToSettle is what to do about an operation in doubt; "" = its name is not known.
func (r *once) howToSettle(operation string) string {
	if operation == "" {
		return "Look at its effect, and find it with: coatcheck operation ls --in-doubt" + r.again
	}
	settle := "coatcheck operation settle " + operation + r.again
	return "Look at its effect. If it happened: " + settle + " --completed. If not, and it is to run again: " + settle + " --not-begun"
}

// recorded reads the record of a command that ran before. One by other means, such as an operator's
// settlement, ended well.
func (r *once) recorded(answer []byte) onceRecord {
	record := onceRecord{}
	if json.Unmarshal(answer, &record) != nil || record.Key == "" {
		record = onceRecord{Key: r.key.Key}
	}
	return record
}
