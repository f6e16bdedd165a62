package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Exit codes of every command.
const (
	done     = 0
	failed   = 1
	usage    = 2
	tryLater = 75
)

// program is a command's input from outside.
type program struct {
	getenv  func(string) string
	environ func() []string // nil = there is no list of it
	stdout  io.Writer
	stderr  io.Writer
	json    bool
	shown   func() // ends what a terminal shows while a command waits; nil = nothing is shown
}

// usageError is a wrong command line or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// laterError is a failure that may pass and is harmless to repeat: held, exhausted, unavailable.
type laterError struct{ error }

func (e laterError) Unwrap() error { return e.error }

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// exitError is the exit code of a command that coatcheck ran for its user, passed on silently.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Main runs the program with the arguments, environment, standard streams and signals of
// the process, and returns the exit code: 0 done, 1 failed, 2 wrong usage, 75 try again later, or
// that of the command which it ran. It is called once.
func Main() (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &program{getenv: os.Getenv, environ: os.Environ, stdout: os.Stdout, stderr: os.Stderr}
	return p.run(ctx, os.Args[1:])
}

// run is the whole program, for tests: it ends when the command has, or soon after the context.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return (&program{getenv: getenv, stdout: stdout, stderr: stderr}).run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) int {
	root := p.command(args...)
	if len(args) > 0 && slices.Contains([]string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		completeChoices(root)
	}
	root.SetArgs(withOperationLast(root, args))
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	command, err := root.ExecuteContextC(ctx)
	p.quiet()
	if err == nil {
		return done
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	fmt.Fprintf(p.stderr, "coatcheck: %s\n", printable(err.Error()))
	// cobra itself refuses a command that there is not, before any runs
	if errors.As(err, &usageError{}) || strings.HasPrefix(err.Error(), "unknown command") {
		fmt.Fprintln(p.stderr, tryHelp(command))
		return usage
	}
	if coded, ok := errors.AsType[codedError](err); ok {
		return coded.code
	}
	if errors.As(err, &laterError{}) {
		return tryLater
	}
	return failed
}

// subcommand is a command below the program's own.
type subcommand struct {
	name, heading string // heading: of its group in the help
	make          func() *cobra.Command
}

func (p *program) subcommands() []subcommand {
	const run, handOut, look, none = "Run:", "Hand out:", "Configure and look:", ""
	return []subcommand{
		{"serve", run, p.serveCommand}, {"gateway", run, p.gatewayCommand}, {"healthcheck", run, p.healthcheckCommand},
		{"install", run, p.installCommand},
		{"incr", handOut, p.incrCommand}, {"counter", handOut, p.counterCommand}, {"id", handOut, p.idCommand},
		{"segment", handOut, p.segmentCommand}, {"token", handOut, p.tokenCommand}, {"operation", handOut, p.operationCommand},
		{"limit", handOut, p.limitCommand},
		{"lock", handOut, p.lockCommand}, {"once", handOut, p.onceCommand}, {"worker", handOut, p.workerCommand},
		{"config", look, p.configCommand}, {"key", look, p.keyCommand}, {"store", look, p.storeCommand},
		{"doctor", look, p.doctorCommand},
		{"guard", none, p.guardCommand}, {"version", none, p.versionCommand},
	}
}

// command returns the program's command with those below it. If the first argument names one of
// them, it is the only one: all their flags take longer to make than most commands run.
func (p *program) command(args ...string) *cobra.Command {
	root := &cobra.Command{
		Example: "  coatcheck serve --dev",
		Use:     "coatcheck",
		Short:   "Counters, ids, worker ids, one-use tokens and locks on Redis",
		Long: "coatcheck hands out counters, ids, leased worker ids, one-use idempotency tokens and locks, on Redis or on a store of " +
			"its own.\n\n" +
			"Begin with `coatcheck serve --dev`. A flag that --help has under a heading, such as Store, has an environment variable " +
			"COATCHECK_<FLAG> as well,\n" +
			"and can stand in a file (--config); order is flag, environment, file. The others are arguments of one call.\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 75 try again later.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().BoolVar(&p.json, "json", false, "print JSON for machines")
	asksVersion := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if *asksVersion {
			return p.printVersion()
		}
		return c.Help()
	}
	root.PersistentPreRun = func(c *cobra.Command, _ []string) {
		if c.Hidden || p.environ == nil {
			return // for the program itself, or the shell
		}
		for _, warning := range strangers(p.environ(), c.Flags()) {
			fmt.Fprintf(p.stderr, "coatcheck: %s\n", warning)
		}
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{withNearest(c.Flags(), err)} })
	below := p.subcommands()
	if i := slices.IndexFunc(below, func(c subcommand) bool { return len(args) > 0 && c.name == args[0] }); i >= 0 {
		below = below[i : i+1]
	}
	for _, c := range below {
		if c.heading != "" && !root.ContainsGroup(c.heading) {
			root.AddGroup(&cobra.Group{ID: c.heading, Title: c.heading})
		}
		command := c.make()
		command.GroupID = c.heading
		root.AddCommand(command)
	}
	groupFlags(root)
	return root
}

// noArgs refuses arguments that a command would ignore.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

// collected is a whole list, never nil, or the error that ended it.
func collected[T any](list iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for one, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// print writes for people, or the value as one line of JSON with --json.
func (p *program) print(value any, people string) error {
	p.quiet()
	if !p.json {
		_, err := io.WriteString(p.stdout, people)
		return err
	}
	return json.NewEncoder(p.stdout).Encode(value)
}

// printable is a text that may have parts of another server in it, without what moves a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// isAny reports whether an error is of one of the kinds.
func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// kindOf gives an error its exit code.
func kindOf(err error) error {
	switch {
	case err == nil || errors.As(err, new(usageError)) || errors.As(err, new(laterError)) || errors.As(err, new(exitError)):
		return err
	case isAny(err, client.ErrInvalid):
		return usageError{err}
	case isAny(err, client.ErrUnavailable, client.ErrExhausted, client.ErrQuarantined, client.ErrHeld, client.ErrAttemptRunning),
		// of commands that go to Redis themselves
		isAny(err, redisstore.ErrUnavailable):
		return laterError{err}
	}
	return err
}
