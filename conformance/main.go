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
	allPassed = 0
	failed    = 1
	usage     = 2 // or the server does not answer as the command line says
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program, for tests: it ends when the checks have, or soon after the context.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return allPassed
	}
	if err != nil {
		fmt.Fprintf(stderr, "conformance: %v\n", err)
		return usage
	}
	chosen := o.choose(checks())
	if len(chosen) == 0 {
		fmt.Fprintln(stderr, "conformance: -run and -skip leave no check; -list prints all of them")
		return usage
	}
	if o.list {
		list(stdout, chosen)
		return allPassed
	}
	s := newSuite(o)
	if err := s.preflight(ctx); err != nil {
		fmt.Fprintf(stderr, "conformance: %v\n", err)
		return usage
	}
	return s.report(ctx, chosen, stdout, stderr)
}
