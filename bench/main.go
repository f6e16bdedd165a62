// Command bench measures coatcheck side by side with the bare thing and with what others do, on a
// redis-server of its own.
//
// Every figure is a ratio within one run: all sides take turns in short rounds, and the medians of
// the rounds are compared. README.md says what each side is and what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	done   = 0
	failed = 1
	usage  = 2
)

const help = `usage: go run . COMMAND [flags]

  redis     what each script takes in Redis, beside the bare commands of the same work
  guard     a guarded handler beside an unguarded one and beside other ways to guard it, over HTTP
  gateway   the gateway beside a bare reverse proxy
  ids       snowflake ids beside a bare atomic addition and beside other generators; without Redis
  workers   a thousand processes that lease a worker id at once
  slots     what the scripts of worker ids take in Redis, on rings of few slots and of many
  locks     beside those of other libraries: alone, and contended by processes
  limits    rate limits beside another library's and a plain script
  counters  adding to counters beside other clients: on one key and on many, with acknowledgement
  incr      GET /incr/{key} over HTTP beside a bare handler and Webdis
  memory    what tokens, counters and request ids take in Redis
  once      a command that does nothing, bare, under flock, and under coatcheck once
  size      the size of the program, as make build makes it
  all       these one after the other, and docs/benchmarks.md from them: go run . all -page ../docs/benchmarks.md

go run . COMMAND -h lists the flags. redis-server has to be in PATH; REDIS_SERVER names another one.
`

// commands are what the program can do. Those after the empty line are started by the others, as
// processes of their own.
var commands = map[string]func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error{
	"redis":    redisCommand,
	"guard":    guardCommand,
	"gateway":  gatewayCommand,
	"ids":      idsCommand,
	"locks":    locksCommand,
	"limits":   limitsCommand,
	"counters": countersCommand,
	"incr":     incrCommand,
	"memory":   memoryCommand,
	"workers":  workersCommand,
	"slots":    slotsCommand,
	"once":     onceCommand,
	"size":     sizeCommand,
	"all":      allCommand,

	"serve":      serveCommand,
	"proxy":      proxyCommand,
	"load":       loadCommand,
	"contend":    contendCommand,
	"lease":      leaseCommand,
	"serve-incr": serveIncrCommand,
	"get":        getCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program. It ends when the command has, or soon after the context.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(stderr, help)
		return usage
	}
	err := commands[args[0]](ctx, args[1:], stdin, stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return done
	case errors.As(err, &usageError{}):
		fmt.Fprintf(stderr, "bench %s: %v\n", args[0], err)
		return usage
	}
	fmt.Fprintf(stderr, "bench %s: %v\n", args[0], err)
	return failed
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parse reads a command's flags and refuses anything after them.
func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard) // run tells the error
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	}
	if err != nil {
		return usageError{err}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	return nil
}
