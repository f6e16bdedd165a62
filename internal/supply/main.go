// Command supply lists the modules in the binary of this repository, and their licences.
//
//	go run ./internal/supply licences            writes docs/licences.md: the modules in the binary, and their licences
//	go run ./internal/supply texts > FILE        prints the texts of those licences, which go along with a binary
//	go run ./internal/supply sbom BINARY > FILE  prints a bill of materials of a binary, as CycloneDX 1.6 in JSON
//	go run ./internal/supply reproduce           builds twice, in two folders and without a cache, and compares the bytes
//	go run ./internal/supply release FOLDER      builds archives for every system, with bills and sums
//
// It is run in the root of the repository. The Makefile has a target for each.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("one of these belongs here: licences, texts, sbom BINARY, reproduce, release FOLDER")

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "licences":
		return writeLicences(ctx, ".", licencesPage)
	case len(args) == 1 && args[0] == "texts":
		return printTexts(ctx, ".", linux, out)
	case len(args) == 2 && args[0] == "sbom":
		return printBill(ctx, ".", args[1], out)
	case len(args) == 1 && args[0] == "reproduce":
		return reproduce(ctx, ".", out)
	case len(args) == 2 && args[0] == "release":
		return release(ctx, ".", args[1], targets, out)
	}
	return errUsage
}
